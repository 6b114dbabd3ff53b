"""How the page looks: on a wide screen, on a phone, in the dark and on paper."""

CSS = """
:root { --ink: #1d2430; --soft: #5b6675; --line: #dde2e9; --paper: #fff; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa5b4; --line: #333b47; --paper: #14181f; --card: #1d232c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 75rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .4rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
p { margin: .4rem 0 .8rem; max-width: 46rem; color: var(--soft); }
nav { margin: 1rem 0; font-size: .9rem; }
nav a { color: inherit; margin-right: 1rem; white-space: nowrap; display: inline-block; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem;
  margin: 1.2rem 0; }
.tiles div { background: var(--card); border-radius: .5rem; padding: .7rem .9rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr));
  gap: .9rem; margin-bottom: .9rem; }
figure { margin: 0 0 .9rem; padding: .5rem; background: #fff; border: 1px solid var(--line);
  border-radius: .5rem; color: #1d2430; max-width: 38rem; }
.gallery figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; }
figure.wide img { min-width: 30rem; }
figcaption { font-size: .85rem; line-height: 1.35; padding: .3rem .3rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  margin: .4rem 0 1rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media print {
  :root { --ink: #000; --soft: #333; --line: #bbb; --paper: #fff; --card: #fff; }
  body { max-width: none; padding: 0; font-size: 11pt; }
  nav { display: none; }
  figure, tr, .tiles div { break-inside: avoid; }
  h2 { break-after: avoid; }
  .gallery { grid-template-columns: repeat(3, 1fr); }
  figure.wide img { min-width: 0; }
  th, td { white-space: normal; }
}
"""
