// The tree: its columns, which nodes are folded, and the rows that remain visible.

import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";

/** Number of nodes up to which a tree opens unfolded. */
const UNFOLDED = 400;

/** Shapes of the kinds of outcomes, so that color is not all that tells them apart. */
export const MARKS = { good: "●", bad: "◆", warn: "▲", neutral: "○" };

/** Returns a number in at most three significant digits; a dash if there is none. */
export function shortNumber(number) {
  return number === null || number === undefined ? "–" : String(Number(number.toPrecision(3)));
}

export class TreeModel extends EventTarget {
  /** @param {object} data Answer of /api/tree. */
  constructor(data) {
    super();
    Object.assign(this, data);
    this.count = this.parent.length;
    this.children = Array.from({ length: this.count }, () => []);
    this.depth = new Int32Array(this.count);
    // A parent's id is lower than its children's.
    for (let id = 1; id < this.count; id++) {
      this.children[this.parent[id]].push(id);
      this.depth[id] = this.depth[this.parent[id]] + 1;
    }
    this.below = new Int32Array(this.count);
    for (let id = this.count - 1; id > 0; id--) this.below[this.parent[id]] += this.below[id] + 1;
    this.folded = new Uint8Array(this.count);
    this.onBestPath = new Uint8Array(this.count);
    for (const id of this.path(this.best)) this.onBestPath[id] = 1;
    this.selected = this.best;
    if (this.count > UNFOLDED) this.#foldDeep();
    this.#update();
  }

  /** Returns the ids from the root to a node, both included. */
  path(id) {
    const ids = [];
    for (; id >= 0; id = this.parent[id]) ids.push(id);
    return ids.reverse();
  }

  /** Returns whether a node's children are visible. */
  isOpen(id) {
    return this.children[id].length > 0 && !this.folded[id];
  }

  kindOf(id) {
    return this.solved[id] ? "good" : outcomeKind(this.outcome[id]);
  }

  /** Returns a node in words. */
  describe(id) {
    const facts = [this.label[id]];
    if (this.outcome[id]) facts.push(`outcome ${outcomeLabel(this.outcome[id])}`);
    if (this.solved[id] !== null) facts.push(this.solved[id] ? "solved" : "not solved");
    if (this.visits[id]) facts.push(`value ${shortNumber(this.mean[id])}`, `${this.visits[id]} visits`);
    if (this.end[id]) facts.push(this.end[id]);
    if (this.onBestPath[id]) facts.push("on the best path");
    if (this.folded[id]) facts.push(`${this.below[id]} nodes below`);
    return facts.join(", ");
  }

  /** Selects a node, and unfolds those above it. */
  select(id) {
    let changed = false;
    for (let above = this.parent[id]; above >= 0; above = this.parent[above]) {
      changed ||= this.folded[above] === 1;
      this.folded[above] = 0;
    }
    this.selected = id;
    if (changed) this.#update();
    this.dispatchEvent(new Event("select"));
  }

  setFolded(id, folded) {
    if (!this.children[id].length || Boolean(this.folded[id]) === folded) return;
    this.folded[id] = folded ? 1 : 0;
    if (folded && this.selected !== id && this.path(this.selected).includes(id)) {
      this.#update();
      this.select(id);
    } else {
      this.#update();
    }
  }

  toggle(id) {
    this.setFolded(id, !this.folded[id]);
  }

  unfoldAll() {
    this.folded.fill(0);
    this.#update();
  }

  /** Folds all nodes but the root. */
  foldAll() {
    for (let id = 1; id < this.count; id++) this.folded[id] = this.children[id].length ? 1 : 0;
    this.folded[0] = 0;
    const [, below] = this.path(this.selected);
    this.#update();
    this.select(below ?? 0);
  }

  /**
   * Walks from the selected node as ARIA's pattern of trees says.
   * @param {string} key Name of a key.
   * @param {number} page Number of rows of PageUp and PageDown.
   * @returns {boolean} Whether the key walks.
   */
  walk(key, page = 10) {
    const row = this.rowOf[this.selected];
    const last = this.rows.length - 1;
    const to = {
      ArrowDown: row + 1,
      ArrowUp: row - 1,
      PageDown: row + page,
      PageUp: row - page,
      Home: 0,
      End: last,
    }[key];
    if (to !== undefined) {
      this.select(this.rows[Math.max(0, Math.min(to, last))]);
    } else if (key === "ArrowRight") {
      if (this.isOpen(this.selected)) this.select(this.children[this.selected][0]);
      else this.setFolded(this.selected, false);
    } else if (key === "ArrowLeft") {
      if (this.isOpen(this.selected)) this.setFolded(this.selected, true);
      else if (this.parent[this.selected] >= 0) this.select(this.parent[this.selected]);
    } else if (key === "*") {
      for (const id of this.children[this.parent[this.selected]] ?? [0]) this.folded[id] = 0;
      this.#update();
    } else if (key === "Enter" || key === " ") {
      this.toggle(this.selected);
    } else {
      return false;
    }
    return true;
  }

  /** Folds what is deeper than the first levels, except for the path to the best node. */
  #foldDeep() {
    const level = [];
    for (const depth of this.depth) level[depth] = (level[depth] ?? 0) + 1;
    let shown = 0;
    let deepest = 0;
    while (deepest < level.length && shown + level[deepest] <= UNFOLDED) shown += level[deepest++];
    for (let id = 0; id < this.count; id++) {
      const stays = this.depth[id] < deepest - 1 || (this.onBestPath[id] && id !== this.best);
      this.folded[id] = this.children[id].length && !stays ? 1 : 0;
    }
  }

  /** Computes the visible rows, in the order of the outline. */
  #update() {
    this.rows = [];
    this.rowOf = new Int32Array(this.count).fill(-1);
    const stack = [0];
    while (stack.length) {
      const id = stack.pop();
      this.rowOf[id] = this.rows.length;
      this.rows.push(id);
      if (this.isOpen(id)) for (let at = this.children[id].length - 1; at >= 0; at--) stack.push(this.children[id][at]);
    }
    this.dispatchEvent(new Event("fold"));
  }
}
