// The density of a column of numbers: the model's curve over the bars of the table, with the
// curve before anything was selected behind it, and a brush to select with.

import uPlot from "./vendor/uPlot.js";
import { number } from "./format.js";

const HEIGHT = 118;
const EDGE = 9; // pixels in which the end of a selection can be taken
const CLICK = 4; // pixels within which a drag is a click

export class Plot {
  constructor(column, start, listener) {
    this.column = column;
    this.start = start;
    this.listener = listener; // {brush(low, high), pick(value), done()}
    this.element = document.createElement("div");
    this.element.className = "plot";
    this.element.setAttribute("role", "img");
    this.bins = column.points.map((point) => binOf(point, column.edges));
    this.empty = column.points.map(() => null);
    this.top = 1;
    this.range = null;
  }

  // Needs the element on the page, for its width.
  build() {
    const { low, high, kind } = this.column;
    const style = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
    this.chart = new uPlot(
      {
        width: this.width(),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        padding: [6, 10, 0, 10],
        hooks: { draw: [() => this.place()] }, // before it is drawn, the chart has no scale
        scales: { x: { time: false, range: [low, high] }, y: { range: () => [0, this.top] } },
        axes: [
          {
            stroke: style("--soft"),
            font: "11px system-ui, sans-serif",
            size: 22,
            gap: 2,
            space: kind === "date" ? 80 : 50,
            grid: { show: false },
            ticks: { stroke: style("--line"), size: 4 },
            values: (_, values) => values.map((value) => number(value, kind)),
          },
          { show: false },
        ],
        series: [
          {},
          { fill: style("--data"), points: { show: false } },
          { stroke: style("--ghost"), width: 1, dash: [4, 3], points: { show: false } },
          { stroke: style("--model"), fill: style("--model-fill"), width: 2, points: { show: false } },
        ],
      },
      [this.column.points, this.empty, this.start, this.empty],
      this.element,
    );
    this.mark = document.createElement("div");
    this.mark.className = "mark";
    this.mark.hidden = true;
    this.chart.over.append(this.mark);
    this.listen(this.chart.over);
  }

  width() {
    return Math.max(180, this.element.clientWidth);
  }

  resize() {
    if (this.chart.width !== this.width()) {
      this.chart.setSize({ width: this.width(), height: HEIGHT });
      this.place();
    }
  }

  redraw() {
    this.chart.redraw(false);
  }

  draw(density, heights) {
    const data = heights ? this.bins.map((bin) => (bin < 0 ? 0 : heights[bin])) : this.empty;
    const shown = density ?? this.start;
    this.top = 1.08 * Math.max(highest(shown), heights ? Math.max(...heights) : 0) || 1;
    this.chart.setData([this.column.points, data, this.start, density ?? this.empty]);
  }

  // Marks an interval, a single number, or nothing.
  select(range) {
    this.range = range;
    this.place();
  }

  // Puts the mark of the selection where it belongs.
  place() {
    if (!this.mark) return;
    this.mark.hidden = this.range === null;
    if (this.range === null) return;
    const { low, high } = this.column;
    const at = (value) => this.chart.valToPos(Math.min(Math.max(value, low), high), "x");
    const left = at(this.range[0] ?? low);
    const right = this.range.length === 1 ? left : at(this.range[1] ?? high);
    this.mark.classList.toggle("point", this.range.length === 1);
    this.mark.style.left = `${left}px`;
    this.mark.style.width = `${Math.max(right - left, 0)}px`;
  }

  listen(over) {
    let from = null; // where the drag began, and what it moves
    over.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      over.setPointerCapture(event.pointerId);
      from = { x: this.position(event), moved: false, ...this.grabbed(this.position(event)) };
    });
    over.addEventListener("pointermove", (event) => {
      const x = this.position(event);
      if (from === null) {
        over.style.cursor = { ends: "ew-resize", whole: "grab" }[this.grabbed(x).what] ?? "crosshair";
        return;
      }
      if (!from.moved && Math.abs(x - from.x) < CLICK) return;
      from.moved = true;
      const shift = x - from.x;
      const [one, other] =
        from.what === "whole" ? [from.left + shift, from.right + shift] : [from.fixed, x];
      const ends = [one, other].map((pixel) => this.chart.posToVal(this.inside(pixel), "x"));
      this.listener.brush(Math.min(...ends), Math.max(...ends));
    });
    over.addEventListener("pointerup", (event) => {
      if (from !== null && !from.moved) {
        this.listener.pick(this.chart.posToVal(this.inside(this.position(event)), "x"));
      }
      if (from !== null) this.listener.done();
      from = null;
    });
    over.addEventListener("pointercancel", () => {
      if (from !== null) this.listener.done();
      from = null;
    });
  }

  // What a drag from here moves: an end of the selection, all of it, or a new one.
  grabbed(x) {
    if (this.range?.length === 2) {
      const left = parseFloat(this.mark.style.left);
      const right = left + parseFloat(this.mark.style.width);
      if (Math.abs(x - left) < EDGE) return { what: "ends", fixed: right };
      if (Math.abs(x - right) < EDGE) return { what: "ends", fixed: left };
      if (x > left && x < right) return { what: "whole", left, right };
    }
    return { what: "new", fixed: x };
  }

  position(event) {
    return event.clientX - this.chart.over.getBoundingClientRect().left;
  }

  inside(pixel) {
    return Math.min(Math.max(pixel, 0), this.chart.over.clientWidth);
  }
}

function binOf(point, edges) {
  if (point < edges[0] || point > edges[edges.length - 1]) return -1;
  let [low, high] = [0, edges.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= point) low = middle;
    else high = middle;
  }
  return low;
}

// The top of a curve; a pole, beside which the rest would be flat, is cut off.
function highest(density) {
  const positive = density.filter((height) => height > 0).sort((a, b) => a - b);
  if (positive.length === 0) return 0;
  const most = positive[positive.length - 1];
  const usual = positive[Math.floor(0.95 * (positive.length - 1))];
  return positive.length > 20 ? Math.min(most, 5 * usual) : most;
}
