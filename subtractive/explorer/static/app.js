// The page: it asks the server what the selection means, and draws the answers.

import { Card, add } from "./card.js";
import { count, percent, phrase } from "./format.js";
import { Joint } from "./joint.js";
import { Store } from "./state.js";

const PAUSE = 300; // milliseconds without a change after which the slower answers are asked for
const AT_ONCE = 4; // columns whose summaries are asked for together: a change is delayed by no more
const HINT = "Drag over a density or move a slider to select an interval, click a density for an exact value, click categories.";
const byId = (id) => document.getElementById(id);

class Page {
  constructor(facts) {
    this.facts = facts;
    this.columns = new Map(facts.columns.map((column) => [column.key, column]));
    this.store = new Store(() => this.changed());
    this.cards = new Map(
      facts.columns.map((column) => [
        column.key,
        new Card(column, facts.start.columns[column.key], this.store),
      ]),
    );
    byId("columns").append(...[...this.cards.values()].map((card) => card.element));
    this.cards.forEach((card) => card.build());
    this.joint = new Joint(byId("joint"));
    this.seed = 0;
    this.asked = null; // when the newest change was made that is not drawn yet
    this.isAsking = false;
    this.answered = new Set(); // columns whose densities are those of the selection
    this.waiting = []; // columns out of sight that are still to be drawn
    this.later = null;
    this.slower = new AbortController();
    this.listen();
    this.store.put(this.store.read(facts.columns));
  }

  listen() {
    byId("undo").addEventListener("click", () => this.store.undo());
    byId("redo").addEventListener("click", () => this.store.redo());
    byId("reset").addEventListener("click", () => this.store.reset());
    byId("again").addEventListener("click", () => this.drawOthers());
    this.copies("link", () => location.href);
    this.copies("copy-python", () => byId("python").textContent);
    this.copies("copy-shell", () => byId("shell").textContent);
    document.addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
      event.preventDefault();
      if (event.shiftKey) this.store.redo();
      else this.store.undo();
    });
    window.addEventListener("hashchange", () => {
      const state = this.store.read(this.facts.columns);
      if (JSON.stringify(state) === JSON.stringify(this.store.state)) return;
      this.store.drag(state);
      this.store.commit();
    });
    for (const side of ["joint-x", "joint-y"]) {
      for (const key of this.columns.keys()) add(byId(side), "option", key).value = key;
      byId(side).addEventListener("change", () => {
        this.store.drag({ pair: [byId("joint-x").value, byId("joint-y").value] });
        this.store.commit();
      });
    }
    new ResizeObserver(() => {
      this.cards.forEach((card) => card.plot?.resize());
      this.joint.redraw();
    }).observe(byId("columns"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.cards.forEach((card) => card.plot?.redraw());
      this.joint.redraw();
    });
  }

  copies(id, text) {
    byId(id).addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text());
        byId("status").textContent = "Copied.";
        byId("status").classList.remove("heard");
      } catch {
        byId("status").textContent = "The browser does not allow copying: select the text instead.";
      }
    });
  }

  get pair() {
    const { given, pair } = this.store.state;
    if (pair) return pair;
    const free = [...this.columns.values()].filter((column) => !("value" in (given[column.key] ?? {})));
    const numbers = free.filter((column) => column.points);
    return (numbers.length > 1 ? numbers : free).slice(0, 2).map((column) => column.key);
  }

  changed() {
    const { given } = this.store.state;
    this.cards.forEach((card, key) => card.show(given[key]));
    byId("undo").disabled = this.store.past.length === 0;
    byId("redo").disabled = this.store.future.length === 0;
    byId("reset").disabled = Object.keys(given).length === 0;
    this.showSelection(given);
    [byId("joint-x").value, byId("joint-y").value] = this.pair;
    this.asked ??= performance.now();
    this.slower.abort();
    clearTimeout(this.later);
    if (!this.isAsking) this.ask();
  }

  // One question at a time; what changes in the meantime is asked for next, and only the newest.
  async ask() {
    this.isAsking = true;
    while (this.asked !== null) {
      const [{ given }, since] = [this.store.state, this.asked];
      this.asked = null;
      try {
        const [columns, others] = this.keysBySight();
        this.draw(await post("curves", { given, columns }), given, columns);
        this.waiting = others;
        afterPainting(() => performance.measure("change to picture", { start: since }));
      } catch (error) {
        this.fail(error);
      }
    }
    this.isAsking = false;
    this.later = setTimeout(() => this.askSlower(), PAUSE);
  }

  draw(answer, given, keys) {
    document.body.classList.remove("failed");
    this.answered = new Set();
    this.drawCards(answer, given, keys);
    this.showAnswer(answer, given);
    byId("python").textContent = answer.python;
    byId("shell").textContent = answer.shell ?? "The command line has no words for this selection.";
    byId("copy-shell").disabled = answer.shell === null;
  }

  drawCards(answer, given, keys) {
    for (const key of keys) {
      if (key in answer.columns) this.answered.add(key);
      this.cards.get(key).draw(answer.columns[key], answer.data?.columns[key], given[key]);
    }
  }

  // The columns in sight, and the others.
  keysBySight() {
    const [near, far] = [[], []];
    this.cards.forEach((card, key) => (isInSight(card) ? near : far).push(key));
    return [near, far];
  }

  fail(error) {
    document.body.classList.add("failed");
    byId("status").textContent = error.message;
  }

  showSelection(given) {
    byId("selection").replaceChildren(
      ...Object.entries(given).map(([key, condition]) => {
        const item = document.createElement("li");
        const button = add(item, "button", `${key}: ${phrase(this.columns.get(key), condition)} ×`);
        button.type = "button";
        button.setAttribute("aria-label", `Clear ${key}: ${phrase(this.columns.get(key), condition)}`);
        button.addEventListener("click", () => this.store.choose(key, null));
        return item;
      }),
    );
  }

  showAnswer({ probability, data, notes }, given) {
    const points = Object.values(given).some((condition) => "value" in condition);
    const said = probability === null ? "" : `P(selection${points ? " | exact values" : ""}) = ${percent(probability)}`;
    byId("probability").textContent = said || (points ? "given exact values" : "nothing selected");
    const near = Object.keys(data?.reach ?? {}).length ? " (near the exact values)" : "";
    byId("rows").textContent = data ? `${count(data.rows)} of ${count(data.of)} rows${near}` : "";
    const told = [said, byId("rows").textContent, ...notes].filter(Boolean);
    const selected = Object.keys(given).length > 0;
    byId("status").textContent = selected ? told.join(". ") : HINT;
    byId("status").classList.toggle("heard", selected && notes.length === 0);
  }

  async askSlower() {
    this.slower = new AbortController();
    const { given } = this.store.state;
    const { signal } = this.slower;
    try {
      await this.askRest(given, signal);
      await this.askSelected(given, signal);
      await this.askJoint(given, signal);
      await this.askSummaries(given, signal);
      this.showSamples(await post("samples", { given, seed: this.seed }, signal));
      document.body.dataset.settled = JSON.stringify(given);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
  }

  // Columns out of sight wait until there is no newer change.
  async askRest(given, signal) {
    const columns = this.waiting;
    if (columns.length === 0) return;
    this.drawCards(await post("curves", { given, columns }, signal), given, columns);
    this.waiting = [];
  }

  // Of some models, the densities of the columns that were selected from take longer.
  async askSelected(given, signal) {
    const isWaiting = (key) => !("value" in given[key]) && !this.answered.has(key);
    if (!Object.keys(given).some(isWaiting)) return;
    const { columns } = await post("selected", { given }, signal);
    this.cards.forEach((card, key) => card.drawOwn(columns[key]));
  }

  // Columns in sight come first.
  async askSummaries(given, signal) {
    const keys = this.keysBySight().flat();
    for (let start = 0; start < keys.length; start += AT_ONCE) {
      const some = keys.slice(start, start + AT_ONCE);
      const { columns } = await post("summary", { given, columns: some }, signal);
      for (const key of some) this.cards.get(key).summarise(columns[key], given[key]);
    }
  }

  async askJoint(given, signal) {
    const [x, y] = this.pair;
    if (this.columns.size < 2) return;
    try {
      const answer = await post("joint", { given, x, y }, signal);
      this.joint.draw(answer, [this.columns.get(x), this.columns.get(y)]);
      const atoms = [x, y].some((key) => this.columns.get(key).atoms?.length);
      const words = [answer.dots ? "Dots are rows of the table." : "", atoms ? "Single values with a probability of their own are left out." : ""];
      byId("joint-note").textContent = words.filter(Boolean).join(" ");
    } catch (error) {
      if (error.name === "AbortError") throw error;
      byId("joint-note").textContent = error.message;
    }
  }

  async drawOthers() {
    this.seed += 1;
    this.showSamples(await post("samples", { given: this.store.state.given, seed: this.seed }));
  }

  showSamples({ columns, rows }) {
    const table = byId("samples");
    table.replaceChildren();
    const head = add(add(table, "thead"), "tr");
    columns.forEach((name) => (add(head, "th", name).scope = "col"));
    const body = add(table, "tbody");
    for (const row of rows) {
      const line = add(body, "tr");
      row.forEach((cell) => add(line, "td", cell));
    }
  }
}

function isInSight(card) {
  const { top, bottom } = card.element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

// A frame is painted after its callbacks have run.
function afterPainting(callback) {
  requestAnimationFrame(() => setTimeout(callback));
}

async function post(name, body, signal = null) {
  const answer = await fetch(`api/${name}`, { method: "POST", body: JSON.stringify(body), signal });
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(content.error);
  return content;
}

async function begin() {
  try {
    const facts = await post("page", {});
    const rows = facts.rows === null ? "" : `, ${count(facts.rows)} rows`;
    document.querySelector(".legend .table").hidden = facts.rows === null;
    byId("about").textContent = `${facts.model ?? "a model"}: ${facts.columns.length} columns${rows}`;
    document.title = `${facts.model ?? "model"} – explorer`;
    window.page = new Page(facts);
  } catch (error) {
    byId("status").textContent = `The explorer does not answer: ${error.message}`;
  }
}

begin();
