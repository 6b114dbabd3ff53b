// One column: its name, its summary, its picture, and the controls that select from it.

import { Bars } from "./bars.js";
import { number, phrase, snapped } from "./format.js";
import { Plot } from "./plot.js";

export class Card {
  constructor(column, start, store) {
    this.column = column;
    this.store = store;
    this.element = document.createElement("article");
    this.element.className = "card";
    this.element.dataset.key = column.key;
    this.title = add(this.element, "h3", column.key);
    this.title.title = column.key;
    this.clear = add(this.element, "button", "×", "clear");
    this.clear.type = "button";
    this.clear.hidden = true;
    this.clear.setAttribute("aria-label", `Clear ${column.key}`);
    this.clear.addEventListener("click", () => store.choose(column.key, null));
    this.summary = add(this.element, "p", "", "summary");
    if (column.points) this.addNumbers(column, start);
    if (column.labels.length) {
      this.bars = new Bars(column, column.points ? "atoms" : "states", store);
      this.element.append(this.bars.element);
    }
  }

  addNumbers(column, start) {
    const brush = (low, high) => this.put(low, high);
    const pick = (value) => {
      this.store.select(column.key, { value: this.within(snapped(value, column.step)) });
    };
    const done = () => this.store.commit();
    this.plot = new Plot(column, start.density, { brush, pick, done });
    this.element.append(this.plot.element);
    const row = add(this.element, "div", "", "sliders");
    this.sliders = ["lowest", "highest"].map((name) => this.slider(row, name));
    this.exact = add(this.element, "button", "exact value", "exact");
    this.exact.type = "button";
    this.exact.addEventListener("click", () => this.toggleExact());
  }

  // The ends of the sliders: those of the axis, as multiples of the step.
  get ends() {
    const { low, high, step } = this.column;
    return [snapped(Math.floor(low / step) * step, step), snapped(Math.ceil(high / step) * step, step)];
  }

  slider(row, name) {
    const input = add(row, "input", "", name);
    input.type = "range";
    [input.min, input.max] = this.ends;
    input.step = this.column.step;
    input.value = name === "lowest" ? input.min : input.max;
    input.setAttribute("aria-label", `${this.column.key}: ${name} value`);
    input.addEventListener("input", () => this.slide(name));
    input.addEventListener("change", () => this.store.commit());
    return input;
  }

  slide(moved) {
    const [low, high] = this.sliders.map((slider) => Number(slider.value));
    const condition = this.store.state.given[this.column.key];
    if (condition && "value" in condition) {
      this.store.select(this.column.key, { value: this.within(low) });
    } else {
      this.put(moved === "lowest" ? Math.min(low, high) : low, moved === "lowest" ? high : Math.max(low, high));
    }
  }

  // Select an interval; an end at the end of the axis is open.
  put(low, high) {
    const [first, last] = this.ends;
    let [from, to] = [low, high].map((value) => snapped(value, this.column.step));
    from = from <= first || from <= this.column.low ? null : from;
    to = to >= last || to >= this.column.high ? null : to;
    const all = from === null && to === null;
    this.store.select(this.column.key, all ? null : { range: [from, to] });
  }

  within(value) {
    return Math.min(Math.max(value, this.column.low), this.column.high);
  }

  toggleExact() {
    const { key, step } = this.column;
    const condition = this.store.state.given[key];
    if (condition && "value" in condition) {
      this.store.choose(key, null);
      return;
    }
    const [low, high] = this.sliders.map((slider) => Number(slider.value));
    this.store.choose(key, { value: this.within(snapped((low + high) / 2, step)) });
  }

  build() {
    this.plot?.build();
  }

  // The controls follow the selection at once, before any answer.
  show(condition) {
    if (this.isShown && condition === this.condition) return; // as in all cards but one
    [this.isShown, this.condition] = [true, condition];
    this.clear.hidden = !condition;
    this.element.classList.toggle("chosen", Boolean(condition));
    this.bars?.select(condition);
    if (!this.plot) return;
    const point = condition && "value" in condition;
    const [first, last] = this.ends;
    const [low, high] = point
      ? [condition.value, condition.value]
      : [condition?.range?.[0] ?? first, condition?.range?.[1] ?? last];
    this.sliders[0].value = low;
    this.sliders[1].value = high;
    this.sliders[1].hidden = Boolean(point);
    const names = point ? ["value"] : ["lowest value", "highest value"];
    names.forEach((name, place) => {
      const slider = this.sliders[place];
      slider.setAttribute("aria-label", `${this.column.key}: ${name}`);
      slider.setAttribute("aria-valuetext", number(Number(slider.value), this.column.kind));
    });
    this.exact.setAttribute("aria-pressed", String(Boolean(point)));
    this.plot.select(point ? [condition.value] : (condition?.range ?? null));
  }

  // A column that is selected from keeps its curve until the next one comes.
  draw(answer, data, condition) {
    const kept = condition && !("value" in condition) ? this.answer : undefined;
    this.answer = answer ?? kept;
    this.data = data;
    this.plot?.draw(this.answer?.density, data?.heights);
    this.bars?.draw(this.answer?.probability, data?.shares);
    const said = condition ? `, selected ${phrase(this.column, condition)}` : "";
    this.plot?.element.setAttribute("aria-label", `Density of ${this.column.key}${said}`);
    if (!answer && condition) this.summary.textContent = phrase(this.column, condition);
  }

  drawOwn(answer) {
    if (!answer) return;
    this.answer = answer;
    this.plot?.draw(answer.density, this.data?.heights);
    this.bars?.draw(answer.probability, this.data?.shares);
  }

  summarise(summary, condition) {
    if (!summary) {
      this.summary.textContent = condition ? phrase(this.column, condition) : "";
      return;
    }
    const [low, median, high] = [summary.low, summary.median, summary.high].map((value) =>
      number(value, this.column.kind),
    );
    const mean = summary.mean === null ? `median ${median}` : `mean ${number(summary.mean, this.column.kind)}`;
    this.summary.textContent = `${mean} · 90 % in ${low} to ${high}`;
    this.plot?.element.setAttribute(
      "aria-label",
      `Density of ${this.column.key}: ${mean}, 90 percent between ${low} and ${high}`,
    );
  }
}

export function add(parent, tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
}
