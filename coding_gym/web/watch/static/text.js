// Numbers and texts for people.

const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;
// They reorder text, so that code looks different from what it is.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Returns a text without the escape sequences of terminals, and with visible control and reordering characters. */
export function plain(text) {
  return text
    .replaceAll("\r\n", "\n")
    .replace(ESCAPES, "")
    .replace(CONTROLS, (character) => String.fromCharCode(character === "\u007f" ? 0x2421 : 0x2400 + character.charCodeAt(0)))
    .replace(DIRECTIONS, (character) => `⟨U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Returns a duration such as 0.4 ms, 12 ms, 3.4 s, 2 min or 5 h. */
export function duration(seconds) {
  if (seconds < 0.001) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

const whole = new Intl.NumberFormat("en");

export function count(number) {
  return whole.format(number);
}

/** Returns a rate such as 0.3, 12.5 or 1,250. */
export function rate(perSecond) {
  return perSecond < 99.95 ? perSecond.toFixed(perSecond === 0 ? 0 : 1) : count(Math.round(perSecond));
}

/** Returns a reward with its sign, such as +0.5; empty if it is 0. */
export function reward(value) {
  if (!value) return "";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toLocaleString("en", { maximumSignificantDigits: 3 })}`;
}

/** Returns an element of a sorted list that a share of the others precedes. */
export function quantile(sorted, share) {
  return sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)];
}
