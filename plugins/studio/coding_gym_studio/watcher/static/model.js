// What is known of the trainers: processes, sessions, figures.

import { plainText } from "../common/terminal.js";

export const STATES = ["running", "waiting", "resetting", "idle", "ended", "closed"];

export class Model {
  constructor() {
    this.processes = [];
    this.sessions = new Map();
    this.summary = null;
    this.fields = [];
    /** Seconds that the trainer's clock is ahead of the browser's. */
    this.ahead = 0;
    /** Where a snapshot's clock has stopped, in seconds since the epoch. */
    this.stoppedAt = null;
  }

  /** Returns what is known now; updates replace sessions, and do not change them. */
  snapshot() {
    const copy = Object.assign(new Model(), this);
    copy.sessions = new Map(this.sessions);
    copy.stoppedAt = Date.now() / 1000;
    return copy;
  }

  /** Takes an update; a complete one replaces everything. Names in it become plain text. */
  apply(update, isComplete) {
    if (isComplete) {
      this.sessions.clear();
      this.fields = update.fields;
    }
    this.processes = update.processes;
    this.summary = update.summary && {
      ...update.summary,
      outcomes: plainKeys(update.summary.outcomes),
      minute_outcomes: plainKeys(update.summary.minute_outcomes),
    };
    if (update.summary && this.isLive) this.ahead = update.summary.now - Date.now() / 1000;
    const known = new Set(update.processes.map((process) => process.key));
    for (const [key, rows] of Object.entries(update.sessions)) {
      for (const row of rows) {
        const session = { process: Number(key) };
        for (let at = 0; at < this.fields.length; at++) session[this.fields[at]] = row[at];
        for (const name of ["kind", "label", "outcome"]) session[name] = session[name] === null ? null : plainText(session[name]);
        session.key = `${key}-${session.id}`;
        this.sessions.set(session.key, session);
      }
    }
    for (const [key, ids] of Object.entries(update.removed)) {
      for (const id of ids) this.sessions.delete(`${key}-${id}`);
    }
    for (const [key, session] of this.sessions) {
      if (!known.has(session.process)) this.sessions.delete(key);
    }
  }

  get isLive() {
    return this.processes.some((process) => process.status === "live");
  }

  process(key) {
    return this.processes.find((process) => process.key === key);
  }

  /** Whether the session's process still runs. */
  isFrozen(session) {
    return this.process(session.process)?.status !== "live";
  }

  /** Seconds for which a session has been in its state. */
  age(session) {
    const now = this.isFrozen(session) ? (this.process(session.process)?.ended_at ?? 0) : (this.stoppedAt ?? Date.now() / 1000) + this.ahead;
    return Math.max(now - session.since, 0);
  }

  /** Number of sessions by state. */
  counts() {
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const session of this.sessions.values()) counts[session.state] += 1;
    return counts;
  }

  /** Sessions of a state and an outcome (null for any), in an order of ``ORDERS``. */
  select(state, outcome, order) {
    const chosen = [];
    for (const session of this.sessions.values()) {
      if ((state === null || session.state === state) && (outcome === null || session.outcome === outcome)) chosen.push(session);
    }
    const compare = ORDERS[order].compare;
    return chosen.sort((one, other) => compare(one, other) || byPlace(one, other));
  }
}

function plainKeys(counts) {
  return Object.fromEntries(Object.entries(counts).map(([name, number]) => [plainText(name), number]));
}

function byPlace(one, other) {
  return one.process - other.process || (one.group ?? 0) - (other.group ?? 0) || one.index - other.index || one.id - other.id;
}

export const ORDERS = {
  place: { label: "index", compare: () => 0 },
  age: { label: "longest in its state", compare: (one, other) => one.since - other.since },
  slow: { label: "slowest step", compare: (one, other) => other.seconds - one.seconds },
  steps: { label: "most steps", compare: (one, other) => other.all_steps - one.all_steps },
  high: { label: "highest return", compare: (one, other) => other.episode_return - one.episode_return },
  low: { label: "lowest return", compare: (one, other) => one.episode_return - other.episode_return },
};
