"""The explorer's page in a real browser: hands on, and the numbers follow."""

import json
import time
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
import torch
from browser import find_browser
from playwright.sync_api import sync_playwright

import subtractive as sub
from subtractive.explorer.answers import Answers
from subtractive.explorer.launch import running

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    height = random.normal(170, 10, 200)
    return pd.DataFrame(
        {
            "city": np.where(height + random.normal(0, 9, 200) > 172, "Oslo", "Bergen"),
            "height": height,
            "rain": np.where(random.random(200) < 0.4, 0.0, random.exponential(3, 200)),
            HOSTILE: random.choice([HOSTILE, "b", "c"], 200),
        }
    )


@pytest.fixture(scope="module")
def model(table):
    kinds = {"rain": sub.tables.Continuous(lower=0, atoms=[0])}
    settings = {"structure": "binary", "max_epochs": 3, "random_state": 0}
    return sub.SubtractiveMixture(3, schema=kinds, **settings).fit(table)


@pytest.fixture(scope="module")
def address(model, table):
    with running(Answers.of(model, table, "file.model")) as (found, _):
        yield found


@pytest.fixture(scope="module")
def chromium():
    path = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium, address):
    """A page that has settled, and that must have had no complaints at the end."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    page.goto(address)
    settle(page)
    yield page
    context.close()
    expected = ("422", "inline script violates")  # what some tests provoke
    assert [text for text in complaints if not any(part in text for part in expected)] == []


def settle(page, given=None):
    """Wait until everything on the page belongs to a selection."""
    wanted = json.dumps({} if given is None else given, separators=(",", ":"))
    page.wait_for_selector(f"body[data-settled='{wanted}']", timeout=30_000)


def given(page):
    """The selection that the address carries."""
    return json.loads(unquote(page.evaluate("location.hash").lstrip("#"))).get("given", {})


def drag(page, key, start, end):
    """Drag over the density of a column, from one share of its width to another."""
    box = page.locator(f"[data-key='{key}'] .u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=8)
    page.mouse.up()


def probability(page):
    return float(page.locator("#probability").inner_text().split("=")[1].rstrip(" %")) / 100


def test_dragging_over_a_density_selects_an_interval_and_all_follows(tab, model, table):
    before = tab.locator("[data-key='city'] .share").all_inner_texts()
    drag(tab, "height", 0.5, 0.8)
    selected = given(tab)
    low, high = selected["height"]["range"]
    assert low < high
    settle(tab, selected)
    evidence = {"height": (low, high)}
    assert abs(probability(tab) - model.probability(evidence)) < 6e-4
    rows = table["height"].between(low, high).sum()
    assert tab.locator("#rows").inner_text() == f"{rows} of 200 rows"
    after = tab.locator("[data-key='city'] .share").all_inner_texts()
    assert after != before
    oslo = tab.locator("[data-key='city'] .bar", has_text="Oslo").locator(".share").inner_text()
    expected = model.probability({"city": ["Oslo"]}, evidence)
    assert abs(float(oslo.rstrip(" %")) / 100 - expected) < 6e-4
    summary = tab.locator("[data-key='rain'] .summary").inner_text()
    assert f"mean {model.mean(evidence)['rain']:.2f}".rstrip("0") in summary
    heights = [float(row) for row in tab.locator("#samples td:nth-child(2)").all_inner_texts()]
    assert len(heights) == 6
    assert all(low <= height <= high for height in heights)
    assert (
        f"given = {{'height': ({float(low)}, {float(high)})}}"
        in tab.locator("#python").inner_text()
    )


def test_columns_out_of_sight_follow_those_in_sight(tab, model):
    tab.set_viewport_size({"width": 390, "height": 420})
    asked = []
    tab.on("request", lambda r: asked.append(r) if r.url.endswith("api/curves") else None)
    tab.locator("[data-key='city'] .bar", has_text="Oslo").click()
    settle(tab, given(tab))
    first, rest = (set(request.post_data_json["columns"]) for request in (asked[0], asked[-1]))
    assert "city" in first
    assert HOSTILE in rest
    assert first.isdisjoint(rest)
    shown = tab.locator(f"[data-key='{HOSTILE}'] .bar", has_text="b").locator(".share").first
    expected = model.probability({HOSTILE: ["b"]}, {"city": ["Oslo"]})
    assert abs(float(shown.inner_text().rstrip(" %")) / 100 - expected) < 6e-4


def test_while_dragging_pictures_follow_and_only_the_newest_selection_is_asked(tab):
    asked = []
    tab.on("request", lambda r: asked.append(r) if r.url.endswith("api/curves") else None)
    box = tab.locator("[data-key='height'] .u-over").bounding_box()
    tab.mouse.move(box["x"] + 50, box["y"] + 40)
    tab.mouse.down()
    for step in range(40):
        tab.mouse.move(box["x"] + 55 + 2 * step, box["y"] + 40)
    tab.mouse.up()
    settle(tab, given(tab))
    assert 1 <= len(asked) < 40
    assert json.loads(asked[-1].post_data)["given"] == given(tab)
    measured = tab.evaluate("performance.getEntriesByName('change to picture').length")
    assert measured >= 2


def test_the_ends_and_the_middle_of_a_selection_can_be_moved(tab):
    drag(tab, "height", 0.4, 0.6)
    low, high = given(tab)["height"]["range"]
    drag(tab, "height", 0.6, 0.8)  # its right end
    assert given(tab)["height"]["range"][0] == low
    wider = given(tab)["height"]["range"][1]
    assert wider > high
    drag(tab, "height", 0.6, 0.5)  # all of it
    moved = given(tab)["height"]["range"]
    assert moved[0] < low
    assert abs((moved[1] - moved[0]) - (wider - low)) < 0.3


def test_clicking_a_density_takes_an_exact_value(tab, model):
    box = tab.locator("[data-key='height'] .u-over").bounding_box()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + 30)
    value = given(tab)["height"]["value"]
    settle(tab, given(tab))
    oslo = tab.locator("[data-key='city'] .bar", has_text="Oslo").locator(".share").inner_text()
    expected = model.probability({"city": ["Oslo"]}, {"height": value})
    assert abs(float(oslo.rstrip(" %")) / 100 - expected) < 6e-4
    assert tab.locator("#probability").inner_text() == "given exact values"


def test_sliders_are_moved_by_the_keyboard(tab, model):
    slider = tab.get_by_role("slider", name="height: lowest value")
    slider.focus()
    for _ in range(3):
        tab.keyboard.press("PageUp")
    low, high = given(tab)["height"]["range"]
    assert high is None
    settle(tab, given(tab))
    assert abs(probability(tab) - model.probability({"height": (low, None)})) < 6e-4
    assert slider.get_attribute("aria-valuetext")
    tab.keyboard.press("Home")
    assert given(tab) == {}


def test_categories_and_atoms_are_clicked(tab, model):
    tab.locator("[data-key='city'] .bar", has_text="Oslo").click()
    tab.get_by_role("button", name="0: ").click()  # of rain
    selected = given(tab)
    assert selected["rain"] == {"atoms": [0]}
    settle(tab, selected)
    expected = model.probability({"city": ["Oslo"], "rain": [0]})
    assert abs(probability(tab) - expected) < 6e-4
    pressed = tab.locator("[aria-pressed='true']")
    assert pressed.count() == 2
    assert set(tab.locator("#samples td:first-child").all_inner_texts()) == {"Oslo"}


def test_undo_redo_and_reset(tab):
    drag(tab, "height", 0.3, 0.6)
    first = given(tab)
    tab.locator("[data-key='city'] .bar").first.click()
    second = given(tab)
    assert second != first
    tab.get_by_role("button", name="Undo").click()
    assert given(tab) == first
    tab.keyboard.press("Control+z")
    assert given(tab) == {}
    assert tab.get_by_role("button", name="Undo").is_disabled()
    tab.keyboard.press("Control+Shift+z")
    assert given(tab) == first
    tab.get_by_role("button", name="Redo").click()
    assert given(tab) == second
    tab.get_by_role("button", name="Reset").click()
    assert given(tab) == {}
    settle(tab, {})
    tab.get_by_role("button", name="Undo").click()
    settle(tab, second)


def test_a_link_carries_the_selection_to_another_tab_which_goes_its_own_way(tab, address):
    drag(tab, "height", 0.3, 0.6)
    selected = given(tab)
    other = tab.context.new_page()
    other.goto(address + tab.evaluate("location.hash"))
    settle(other, selected)
    assert other.locator("#probability").inner_text().startswith("P(selection) =")
    other.locator("[data-key='city'] .bar").first.click()
    settle(other, given(other))
    settle(tab, selected)
    assert set(given(other)) == {"height", "city"}
    assert given(tab) == selected


def test_a_link_draws_its_selection_where_it_is(tab, address):
    link = quote(json.dumps({"given": {"height": {"range": [170, None]}}}))
    tab.goto("about:blank")
    tab.goto(f"{address}#{link}")
    settle(tab, {"height": {"range": [170, None]}})
    over = tab.locator("[data-key='height'] .u-over").bounding_box()
    mark = tab.locator("[data-key='height'] .mark").bounding_box()
    assert abs(mark["x"] + mark["width"] - over["x"] - over["width"]) < 3
    assert 0.2 < mark["width"] / over["width"] < 0.8


UNKNOWN = quote('{"given": {"age": {"value": 1}}}')


@pytest.mark.parametrize(
    "fragment",
    ["%E0%A4%A", *(pytest.param(f, marks=pytest.mark.slow) for f in ("nonsense", UNKNOWN))],
)
def test_a_link_with_nonsense_shows_the_page(tab, address, fragment):
    tab.goto("about:blank")
    tab.goto(f"{address}#{fragment}")
    settle(tab, {})


def test_a_link_that_selects_nothing_says_why(tab, address):
    tab.goto("about:blank")
    tab.goto(f"{address}#{quote(json.dumps({'given': {'height': {'range': [5, 1]}}}))}")
    tab.wait_for_selector("body.failed")
    assert "cannot be" in tab.locator("#status").inner_text()
    tab.get_by_role("button", name="Reset").click()
    settle(tab, {})
    assert tab.locator("body.failed").count() == 0


def test_the_joint_density_of_another_pair_is_drawn(tab):
    shades = "document.getElementById('joint').toDataURL()"
    before = tab.evaluate(shades)
    tab.get_by_label("up").select_option("city")
    tab.wait_for_selector("#joint[aria-label='Joint density of height and city']")
    assert tab.evaluate(shades) != before


def test_names_of_a_table_are_text_and_inline_scripts_do_not_run(tab):
    assert tab.locator("h3", has_text=HOSTILE).count() == 1
    assert tab.evaluate("document.scripts.length") == 1
    tab.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s)"
    )
    assert tab.evaluate("window.ran") is None


@pytest.mark.parametrize("path", ["/wrong/", "/"])
def test_a_wrong_token_shows_nothing(chromium, address, path):
    page = chromium.new_page()
    answer = page.goto(f"http://{urlsplit(address).netloc}{path}")
    assert answer.status == 403
    assert page.locator(".card").count() == 0
    page.close()


def test_another_name_for_this_machine_shows_nothing(chromium, address):
    # As after DNS rebinding: a name of an attacker that leads to this machine.
    path = find_browser()
    rule = "--host-resolver-rules=MAP evil.test 127.0.0.1"
    browser = chromium.browser_type.launch(executable_path=path, args=["--no-sandbox", rule])
    page = browser.new_page()
    parts = urlsplit(address)
    answer = page.goto(f"http://evil.test:{parts.port}{parts.path}")
    assert answer.status == 403
    browser.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_nothing_sticks_out_on_a_phone_or_on_a_wide_screen(chromium, address, width, scheme):
    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, has_touch=width < 500
    )
    page = context.new_page()
    page.goto(address)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.locator(".card").all()
    assert len(boxes) == 4
    assert all(box.bounding_box()["width"] <= width for box in boxes)
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select, canvas[id], [role=img]')].filter("
        "e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).length"
    )
    assert unnamed == 0
    context.close()


class NeverEnding:
    """Answers whose joint density of everything is computed until nobody waits for it."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def __getattr__(self, name):
        return getattr(self.answers, name)

    def joint(self, request):
        self.asked.append(request["given"])
        while not request["given"]:
            torch.ones(9).sum()
            time.sleep(0.005)  # and leave the processor to the page
        return self.answers.joint(request)


def test_a_drag_is_drawn_and_settles_while_an_older_answer_would_take_forever(
    chromium, model, table
):
    answers = NeverEnding(Answers.of(model, table, None))
    with running(answers) as (address, _):
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.wait_for_selector("[data-key='height'] .u-over", timeout=30_000)
        while not answers.asked:  # slower answers are asked for after a pause
            page.wait_for_timeout(50)
        drag(page, "height", 0.5, 0.8)
        settle(page, given(page))
        assert answers.asked == [{}, given(page)]
        page.close()
