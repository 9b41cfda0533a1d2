// Numbers and texts for people.

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
