// Numbers, times and texts, as they are shown everywhere.

import { spelledOut } from "/static/common/text.js";

const counts = new Intl.NumberFormat("en-US");

/** Returns a count with separators: 12,345. */
export function count(number) {
  return counts.format(number);
}

/** Returns a count with its noun: 1 step, 2 steps. */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Returns a reward with at most four significant digits. */
export function reward(value) {
  if (value === null || Number.isNaN(value)) return "–";
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** Returns a duration such as 380 ms, 4.2 s or 3 min 5 s. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds > 0 && seconds < 0.0005) return "< 1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Returns a length of text such as 820, 12 k or 1.1 M characters. */
export function characters(length) {
  if (length < 1000) return counted(length, "character");
  return length < 999_500 ? `${Math.round(length / 1000)} k characters` : `${(length / 1e6).toFixed(1)} M characters`;
}

/** Returns the name of a task, whose id may be any JSON; empty if there is none. */
export function taskName(task) {
  if (task === null || task === undefined) return "";
  return spelledOut(typeof task === "string" ? task : JSON.stringify(task));
}
