// What is selected, with undo and redo. It lives in the address after the #, so that a link to
// the page is a link to what it shows.

export class Store {
  constructor(changed) {
    this.changed = changed;
    this.state = { given: {} };
    this.past = [];
    this.future = [];
    this.before = null; // the state in which a drag began
  }

  // A step of a drag: shown, but nothing to undo yet.
  drag(change) {
    this.before ??= this.state;
    this.put({ ...this.state, ...change });
  }

  select(key, condition) {
    const given = { ...this.state.given };
    if (condition === null) delete given[key];
    else given[key] = condition;
    this.drag({ given });
  }

  // The end of a drag, or a single change.
  commit() {
    if (this.before !== null && JSON.stringify(this.before) !== JSON.stringify(this.state)) {
      this.past.push(this.before);
      this.future = [];
    }
    this.before = null;
    this.put(this.state);
  }

  choose(key, condition) {
    this.select(key, condition);
    this.commit();
  }

  undo() {
    if (this.past.length === 0) return;
    this.future.push(this.state);
    this.before = null;
    this.put(this.past.pop());
  }

  redo() {
    if (this.future.length === 0) return;
    this.past.push(this.state);
    this.put(this.future.pop());
  }

  reset() {
    this.drag({ given: {} });
    this.commit();
  }

  put(state) {
    this.state = state;
    const hash = `#${encodeURIComponent(JSON.stringify(state))}`;
    if (this.before === null && location.hash !== hash) history.replaceState(null, "", hash);
    this.changed(state);
  }

  // Take the state that a link carries; what the page does not know of is left out.
  read(columns) {
    let state;
    try {
      state = JSON.parse(decodeURIComponent(location.hash.slice(1) || "{}"));
    } catch {
      state = {};
    }
    const known = new Set(columns.map((column) => column.key));
    const entries = Object.entries(state?.given ?? {}).filter(([key]) => known.has(key));
    const pair = (state?.pair ?? []).filter((key) => known.has(key));
    return { given: Object.fromEntries(entries), ...(pair.length === 2 ? { pair } : {}) };
  }
}
