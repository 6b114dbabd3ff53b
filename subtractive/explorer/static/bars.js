// States and atoms: a button each, with the model's probability as a bar and the share of the
// table as a mark on it.

import { percent } from "./format.js";

export class Bars {
  constructor(column, kind, store) {
    this.column = column;
    this.kind = kind; // "states" or "atoms"
    this.store = store;
    this.element = document.createElement("div");
    this.element.className = "bars";
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `${column.key}: ${kind === "atoms" ? "single values" : "values"}`);
    this.rows = column.labels.map((label, place) => this.row(label, place));
    this.element.append(...this.rows.map((row) => row.button));
  }

  row(label, place) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "bar";
    const [name, track, share] = ["span", "span", "span"].map((tag) => document.createElement(tag));
    name.className = "name";
    name.textContent = this.kind === "atoms" ? `= ${label}` : label;
    name.title = label;
    track.className = "track";
    share.className = "share";
    const [model, data] = ["i", "b"].map((tag) => track.appendChild(document.createElement(tag)));
    button.append(name, track, share);
    button.addEventListener("click", () => this.toggle(place));
    return { button, model, data, share, label };
  }

  toggle(place) {
    const chosen = new Set(this.store.state.given[this.column.key]?.[this.kind] ?? []);
    if (!chosen.delete(place)) chosen.add(place);
    const left = [...chosen].sort((a, b) => a - b);
    const every = this.kind === "states" && left.length === this.column.labels.length;
    this.store.choose(this.column.key, left.length && !every ? { [this.kind]: left } : null);
  }

  select(condition) {
    const chosen = condition?.[this.kind];
    this.rows.forEach((row, place) => {
      const on = chosen?.includes(place) ?? false;
      row.button.setAttribute("aria-pressed", String(on));
      row.button.classList.toggle("off", Boolean(chosen) && !on);
    });
  }

  draw(model, data) {
    const longest = Math.max(0.0001, ...(model ?? []), ...(data ?? []));
    this.rows.forEach((row, place) => {
      const probability = model ? model[place] : 0;
      row.model.style.width = `${(100 * probability) / longest}%`;
      row.data.hidden = !data;
      if (data) row.data.style.left = `${(100 * data[place]) / longest}%`;
      row.share.textContent = model ? percent(probability) : "";
      const table = data ? `, ${percent(data[place])} of the rows` : "";
      row.button.setAttribute("aria-label", `${row.label}: ${percent(probability)}${table}`);
    });
  }
}
