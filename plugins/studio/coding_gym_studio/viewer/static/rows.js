// The summaries of all episodes, in columns; filters and orders of them.

import { getJson } from "./api.js";

const KINDS = {
  episode: Float64Array,
  steps: Uint32Array,
  reward: Float64Array,
  outcome: Uint32Array,
  ending: Uint8Array,
  result: Uint8Array,
  task: Uint32Array,
  passed: Uint32Array,
  tests: Uint32Array,
  seconds: Float64Array,
};
/** Milliseconds between requests while the server reads: each one delays it. */
const PAUSE = 200;

export class Rows {
  constructor() {
    this.generation = -1;
    this.reset(0);
  }

  reset(generation) {
    this.generation = generation;
    this.length = 0;
    this.columns = Object.fromEntries(Object.entries(KINDS).map(([name, Kind]) => [name, new Kind(1024)]));
    this.outcomes = [];
    this.tasks = [];
    this.endings = [];
    this.results = [];
    this.hasTimes = false;
    this.isReading = true;
    this.problem = "";
    this.positions = null;
  }

  /**
   * Loads all rows that the server has read, while it reads.
   * @param {() => void} onChange Called after each part.
   */
  async load(onChange) {
    for (;;) {
      const answer = await getJson(`/api/episodes?start=${this.length}`);
      if (answer.generation !== this.generation) {
        const mustRestart = this.length > 0;
        this.reset(answer.generation);
        if (mustRestart) continue;
      }
      this.#append(answer);
      const isDone = !answer.isReading && this.length >= answer.read;
      if (isDone && answer.hasTimes) await this.#loadTimes();
      this.isReading = !isDone;
      onChange();
      if (isDone) return;
      if (this.length >= answer.read) await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }

  #append(answer) {
    const count = answer.columns.episode.length;
    this.#reserve(this.length + count);
    for (const [name, values] of Object.entries(answer.columns)) this.columns[name].set(values, this.length);
    const { reward, seconds } = this.columns;
    const damaged = answer.endings.indexOf("damaged");
    for (let at = 0; at < count; at++) {
      // JSON has neither NaN nor infinities, and what was damaged has no reward.
      if (answer.columns.reward[at] === null || answer.columns.ending[at] === damaged) reward[this.length + at] = NaN;
    }
    seconds.fill(NaN, this.length, this.length + count);
    this.length += count;
    for (const name of ["outcomes", "tasks", "endings", "results", "problem"]) this[name] = answer[name];
    this.positions = null;
  }

  async #loadTimes() {
    const { generation, seconds } = await getJson("/api/seconds");
    if (generation !== this.generation) return;
    for (let row = 0; row < Math.min(seconds.length, this.length); row++) this.columns.seconds[row] = seconds[row] ?? NaN;
    this.hasTimes = true;
  }

  #reserve(length) {
    for (const [name, column] of Object.entries(this.columns)) {
      if (column.length >= length) continue;
      const larger = new column.constructor(Math.max(length, column.length * 2));
      larger.set(column);
      this.columns[name] = larger;
    }
  }

  /** Returns the row of an episode, -1 if there is none. */
  rowOf(episode) {
    if (!this.positions) {
      this.positions = new Map();
      for (let row = 0; row < this.length; row++) this.positions.set(this.columns.episode[row], row);
    }
    return this.positions.get(episode) ?? -1;
  }

  /** Returns the values of a row by name. */
  at(row) {
    const values = Object.fromEntries(Object.keys(KINDS).map((name) => [name, this.columns[name][row]]));
    return {
      ...values,
      outcome: this.outcomes[values.outcome],
      ending: this.endings[values.ending],
      result: this.results[values.result],
      task: this.tasks[values.task],
    };
  }
}

/** Names of the filters in addresses, all of which are optional. */
export const FILTERS = ["text", "result", "outcome", "ending", "min", "max", "minSteps", "maxSteps", "minTime", "maxTime"];

const NUMBERS = { min: "reward", max: "reward", minSteps: "steps", maxSteps: "steps", minTime: "seconds", maxTime: "seconds" };

/** What addresses say instead of an empty name, which would not filter. */
export const NONE = "none";

/** Returns the rows that pass the filters, in order. */
export function select(rows, filters, { by = "episode", descending = false } = {}) {
  const { columns, length } = rows;
  const tests = [];
  for (const [name, list, column] of [
    ["result", rows.results, columns.result],
    ["outcome", rows.outcomes, columns.outcome],
    ["ending", rows.endings, columns.ending],
  ]) {
    if (filters[name] === undefined) continue;
    const code = list.indexOf(filters[name]);
    const empty = filters[name] === NONE ? list.indexOf("") : code;
    tests.push((row) => column[row] === code || column[row] === empty);
  }
  for (const [name, field] of Object.entries(NUMBERS)) {
    const limit = Number(filters[name]);
    if (!filters[name] || Number.isNaN(limit)) continue;
    const column = columns[field];
    tests.push(name.startsWith("min") ? (row) => column[row] >= limit : (row) => column[row] <= limit);
  }
  if (filters.text) {
    const text = filters.text.toLowerCase();
    const matches = rows.tasks.map((task) => task.toLowerCase().includes(text));
    const number = /^\d+$/.test(text) ? Number(text) : NaN;
    tests.push((row) => matches[columns.task[row]] || columns.episode[row] === number);
  }
  const found = new Uint32Array(length);
  let size = 0;
  for (let row = 0; row < length; row++) if (tests.every((test) => test(row))) found[size++] = row;
  return order(rows, found.subarray(0, size), by, descending);
}

/**
 * Returns the positions of the names that a column refers to, the most frequent first, and the number of rows of each name.
 * @returns {{codes: number[], totals: Uint32Array}}
 */
export function frequencies(names, column, length) {
  const totals = new Uint32Array(names.length);
  for (let row = 0; row < length; row++) totals[column[row]]++;
  const codes = [...totals.keys()].filter((code) => totals[code]);
  codes.sort((a, b) => totals[b] - totals[a]);
  return { codes, totals };
}

function order(rows, found, by, descending) {
  const column = rows.columns[by];
  const names = { task: rows.tasks, outcome: rows.outcomes, result: rows.results, ending: rows.endings }[by];
  const keys = names ? ranks(names) : null;
  const { tests } = rows.columns;
  let value = (row) => column[row];
  if (keys) value = (row) => keys[column[row]];
  else if (by === "passed") value = (row) => (tests[row] ? column[row] : NaN);
  const sign = descending ? -1 : 1;
  if (by === "episode" && !descending && isAscending(column, found)) return found;
  return found.sort((a, b) => {
    const first = value(a);
    const second = value(b);
    // Unknown values are last in both directions.
    if (first !== first || second !== second) return (first !== first) - (second !== second) || a - b;
    return sign * (first - second) || a - b;
  });
}

function ranks(names) {
  const sorted = [...names.keys()].sort((a, b) => names[a].localeCompare(names[b], "en", { numeric: true }));
  const rank = [];
  sorted.forEach((code, position) => (rank[code] = position));
  return rank;
}

function isAscending(column, found) {
  for (let at = 1; at < found.length; at++) if (column[found[at]] < column[found[at - 1]]) return false;
  return true;
}
