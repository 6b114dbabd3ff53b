// The joint density of two columns as shades, with rows of the table as dots.

import { number } from "./format.js";

const [LEFT, BOTTOM, TOP, RIGHT] = [64, 34, 6, 8];

export class Joint {
  constructor(canvas) {
    this.canvas = canvas;
    this.answer = null;
  }

  draw(answer, pair) {
    this.answer = answer;
    this.pair = pair;
    const [across, up] = pair.map((column) => column.key);
    this.canvas.setAttribute("aria-label", `Joint density of ${across} and ${up}`);
    this.redraw();
  }

  redraw() {
    if (this.answer === null) return;
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = Math.round(0.8 * width);
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const box = { left: LEFT, top: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM };
    const sides = this.pair.map((column, side) => new Side(column, this.answer.lines[side]));
    this.shade(context, box, sides);
    this.dot(context, box, sides);
    this.label(context, box, sides);
  }

  shade(context, box, [across, up]) {
    const { heights } = this.answer;
    const top = brightest(heights);
    const image = new ImageData(across.size, up.size);
    const [paper, ink] = ["--card", "--model"].map((name) => colour(name));
    heights.forEach((value, place) => {
      const [column, row] = [Math.floor(place / up.size), place % up.size];
      // The square root of the density, so that a peak leaves its surroundings visible.
      const share = Math.sqrt(Math.min(value / top, 1));
      const at = 4 * ((up.size - 1 - row) * across.size + column);
      for (let part = 0; part < 3; part += 1) {
        image.data[at + part] = paper[part] + share * (ink[part] - paper[part]);
      }
      image.data[at + 3] = 255;
    });
    const small = document.createElement("canvas");
    [small.width, small.height] = [across.size, up.size];
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = !across.isStates && !up.isStates;
    context.drawImage(small, box.left, box.top, box.width, box.height);
  }

  dot(context, box, [across, up]) {
    const [xs, ys] = this.answer.dots ?? [[], []];
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--dot");
    xs.forEach((x, place) => {
      const [right, high] = [across.share(x, place), up.share(ys[place], place + 7)];
      if (right < 0 || right > 1 || high < 0 || high > 1) return;
      context.beginPath();
      context.arc(box.left + right * box.width, box.top + (1 - high) * box.height, 1.6, 0, 7);
      context.fill();
    });
  }

  label(context, box, [across, up]) {
    const style = getComputedStyle(document.documentElement);
    context.strokeStyle = style.getPropertyValue("--line");
    context.strokeRect(box.left, box.top, box.width, box.height);
    context.fillStyle = style.getPropertyValue("--soft");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    for (const { at, text } of across.ticks(box.width / 60)) {
      context.fillText(text, box.left + at * box.width, box.top + box.height + 14, box.width / 3);
    }
    context.fillText(across.column.key, box.left + box.width / 2, box.top + box.height + 29, box.width);
    context.save();
    context.translate(11, box.top + box.height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(up.column.key, 0, 0, box.height);
    context.restore();
    context.textAlign = "right";
    for (const { at, text } of up.ticks(box.height / 30)) {
      context.fillText(text, LEFT - 6, box.top + (1 - at) * box.height + 4, LEFT - 24);
    }
  }
}

// One side of the picture: where values lie along it.
class Side {
  constructor(column, line) {
    this.column = column;
    this.isStates = line.length === 0;
    this.size = this.isStates ? column.labels.length : line.length;
    this.low = column.low;
    this.high = column.high;
  }

  // Between 0 and 1; dots of a state are spread over its cell, always in the same way.
  share(value, place) {
    if (!this.isStates) return (value - this.low) / (this.high - this.low);
    const spread = ((place * 0.618034) % 1) * 0.6 + 0.2;
    return (value + spread) / this.size;
  }

  ticks(most) {
    if (this.isStates) {
      const every = Math.ceil(this.size / Math.max(most, 1));
      return this.column.labels
        .map((text, place) => ({ at: (place + 0.5) / this.size, text: cut(text) }))
        .filter((_, place) => place % every === 0);
    }
    const count = Math.max(2, Math.min(5, Math.floor(most)));
    const raw = (this.high - this.low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    const found = [];
    for (let value = Math.ceil(this.low / step) * step; value <= this.high; value += step) {
      found.push({ at: this.share(value), text: number(Number(value.toPrecision(12)), this.column.kind) });
    }
    return found;
  }
}

function cut(text) {
  return text.length > 10 ? `${text.slice(0, 9)}…` : text;
}

// The top of the shades: one point may be far above all others.
function brightest(heights) {
  const sorted = [...heights].sort((a, b) => a - b);
  const high = sorted[Math.floor(0.995 * (sorted.length - 1))];
  return high || sorted[sorted.length - 1] || 1;
}

function colour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}
