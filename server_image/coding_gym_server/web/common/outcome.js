// Labels and kinds of outcomes, the same on all pages.

const KINDS = {
  ok: "good",
  passed: "good",
  running: "neutral",
  error: "bad",
  failed: "bad",
  forged: "bad",
  killed: "bad",
  memory: "warn",
  timeout: "warn",
  infrastructure: "warn",
};

/** Returns the kind of an outcome: good, bad, warn or neutral. */
export function outcomeKind(outcome) {
  return KINDS[outcome] ?? "neutral";
}

/** Returns the label of an outcome, or a dash if there is none. */
export function outcomeLabel(outcome) {
  return outcome || "–";
}
