// Numbers, dates and shares as people read them.

const DAY = 86400e6; // microseconds, in which dates and times are kept

export function percent(share) {
  if (share === 0 || share === 1) return `${100 * share} %`;
  if (share < 0.0001) return `${share.toExponential(1)}`;
  if (share < 0.001) return `${(100 * share).toFixed(3)} %`;
  if (share > 0.999) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

export function number(value, kind = "continuous") {
  if (value === null || value === undefined) return "–";
  if (kind === "date") return new Date(value / 1000).toISOString().slice(0, 10);
  if (kind === "duration" || kind === "time") {
    if (Math.abs(value) >= DAY) return `${(value / DAY).toPrecision(3)} d`;
    const minutes = Math.round(value / 60e6);
    return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}`;
  }
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  if (Number.isInteger(value)) return String(value);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
  return String(Number(value.toFixed(digits)));
}

// The multiple of a step that is nearest, without digits that are none.
export function snapped(value, step) {
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + 2);
  return Number((Math.round(value / step) * step).toFixed(Math.min(decimals, 12)));
}

export function count(rows) {
  return rows.toLocaleString("en");
}

export function phrase(column, condition) {
  if (condition.states || condition.atoms) {
    const listed = condition.states ?? condition.atoms;
    return listed.map((place) => column.labels[place]).join(" or ");
  }
  if ("value" in condition) return `= ${number(condition.value, column.kind)}`;
  const [low, high] = condition.range;
  if (low === null) return `≤ ${number(high, column.kind)}`;
  if (high === null) return `≥ ${number(low, column.kind)}`;
  return `${number(low, column.kind)} to ${number(high, column.kind)}`;
}
