"""The documentation is built without a warning, names everything public, and its gallery runs."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from quick_fits import train_briefly

import subtractive as sub

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
sys.path[:0] = [str(DOCS / "_ext"), str(ROOT / "scripts")]

import check_links  # noqa: E402
from public_names import public_names  # noqa: E402

# What densities are made of, and nobody asks.
INTERNAL = {
    "check_normaliser",
    "circuit_expectation",
    "describe",
    "expectations",
    "forward",
    "log_normaliser",
    "log_tilted",
    "log_weight",
    "product_expectations",
    "sample_given",
    "weigh_and_expect",
}


@pytest.fixture
def sources(tmp_path):
    """A copy of what the site is made of."""
    generated = shutil.ignore_patterns("gallery", "reference", "_build", "__pycache__")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=generated)
    for page in ("CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / page, tmp_path)
    return tmp_path


def build(folder, *options):
    """Build the site, and return what Sphinx complains about."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", *options]
    done = subprocess.run(
        [*command, folder / "docs", folder / "site"], capture_output=True, text=True, check=False
    )
    return done.stderr


def build_pages(folder):
    """Build pages alone: headings stand for the reference and the gallery."""
    docs = folder / "docs"
    (docs / "gallery").mkdir()
    for page in ("api", "gallery/index", *(f"gallery/{script.stem}" for script in EXAMPLES)):
        (docs / f"{page}.md").write_text("# A heading\n")
    settings = ("extensions=mathml,myst_parser", "nitpicky=0")
    settings += ("suppress_warnings=config.cache,toc.not_included",)
    return build(folder, "-b", "dummy", *(f"-D{setting}" for setting in settings))


def test_pages_are_built_without_a_warning(sources):
    assert build_pages(sources) == ""


@pytest.mark.slow
def test_a_wrong_link_between_pages_is_noticed(sources):
    with open(sources / "docs" / "choosing.md", "a") as page:
        page.write("\n[a](start-table.md#nowhere) {doc}`gallery/nothing`\n")
    complaints = build_pages(sources)
    assert "nowhere" in complaints
    assert "gallery/nothing" in complaints


@pytest.mark.slow
def test_the_pages_and_the_reference_are_built_without_a_warning(sources):
    # Pages are read and every reference is resolved; the gallery is not run, nothing is written.
    assert build(sources, "-b", "dummy", "-D", "plot_gallery=0") == ""


@pytest.mark.slow
def test_the_whole_site_is_built_and_its_links_lead_somewhere(sources):
    assert build(sources) == ""
    assert check_links.problems((sources / "site").resolve()) == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    pages = {
        "index.html": '<a href="other.html#here">a</a><a href="gone.html">b</a>',
        "other.html": '<p id="there"><script src="https://cdn.example/x.js"></script>',
        "output.html": "<pre>&lt;matplotlib.legend.Legend object at 0x7f66a41af250&gt;</pre>",
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    assert check_links.problems(tmp_path.resolve()) == [
        "index.html links to gone.html, which is not there",
        "index.html links to other.html#here, which has no such anchor",
        "other.html fetches https://cdn.example/x.js",
        "output.html shows <matplotlib.legend.Legend object at 0x...",
    ]


# Of these most is not training; make docs, which CI runs, runs every script as it is.
LONG = {"d_events_and_risk", "f_synthetic_data", "g_classification", "l_plots"}
LONG |= {"o_torch_distributions", "m_expectations", "e_anomalies", "h_digits"}
LONG |= {"b_missing_data"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(s, marks=pytest.mark.slow if s.stem in LONG else [], id=s.stem)
        for s in EXAMPLES
    ],
)
def test_every_script_of_the_gallery_runs(script, monkeypatch):
    # One epoch each: that they run as they are, and look right, is for make docs.
    train_briefly(monkeypatch, 1)
    monkeypatch.chdir(script.parent)  # as the gallery runs them
    plt.switch_backend("agg")
    code = script.read_text(encoding="utf-8")
    exec(compile(code, script, "exec"), {"__name__": "example"})
    assert plt.get_fignums() or "plt" not in code
    plt.close("all")


def test_the_reference_has_every_public_name():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = {f"subtractive.{name}" for name in re.findall(r"^   ([\w.]+)$", page, re.MULTILINE)}
    assert sorted(set(public_names()) - listed) == []


def test_every_public_name_has_an_example():
    lacking = [name for name, value in public_names().items() if ">>>" not in value.__doc__]
    assert sorted(lacking) == []


@pytest.mark.parametrize("owner", [sub.Density, sub.SubtractiveMixture])
def test_every_question_is_asked_in_an_example_that_runs(owner):
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    run = "".join(re.findall(r"```python\n(.*?)```", pages, re.DOTALL)) + inspect.getdoc(owner)
    run += "".join(script.read_text(encoding="utf-8") for script in EXAMPLES)
    questions = {
        name: member.__doc__ or ""
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if member.__module__.startswith("subtractive.") and not name.startswith("_")
    }
    assert len(questions) > 20
    asked = set(re.findall(r"\.(\w+)\(", run)) | {
        n for n, doc in questions.items() if ">>>" in doc
    }
    assert sorted(set(questions) - asked - INTERNAL) == []


def test_files_that_pages_name_exist():
    for page in ("paper.md", "reproduction.md", "real-data.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in set(re.findall(r"`([\w/]+/[\w]+\.py)`", text)):
            assert any((ROOT / folder / name).exists() for folder in ("", "subtractive")), name
