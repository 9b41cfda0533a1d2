// A cell: code that was run, and what came of it.

import { highlightInto } from "../common/highlight.js";
import { outcomeKind, outcomeLabel } from "../common/outcome.js";
import { RunResults } from "../common/results.js";
import { outputElement, RunOutput } from "./output.js";

const LONGEST_CODE_LINES = 8;

const NOTES = {
  timeout: "The code ran longer than its time limit, and was stopped.",
  memory: "The code used more memory than it may, and was ended.",
  killed: "The interpreter was killed.",
  infrastructure: "The sandbox failed, not the code.",
  running: "The program waits for events: use its window on the screen. The next run closes it.",
  animating: "The program draws on, beside this page: its output follows. The next run closes it.",
};

function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Returns a duration for people. */
export function formatSeconds(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** A run of code, with its element. */
export class Cell {
  /**
   * @param {object} run
   * @param {number} run.number Number of the run, from 1.
   * @param {string} run.code
   * @param {string} run.language
   * @param {number} run.limit Time limit in seconds.
   * @param {(code: string) => void} run.onEdit Called with the code when the user wants to change it.
   */
  constructor({ number, code, language, limit, onEdit }) {
    this.number = number;
    this.limit = limit;
    this.started = performance.now();
    this.outcome = null;
    this.isDrawing = false;
    this.element = make("article", "cell panel");
    this.element.setAttribute("aria-label", `Run ${number}`);
    const header = make("header", "cell-header");
    this.badge = make("span", "badge", "running");
    this.badge.dataset.kind = "neutral";
    this.facts = make("span", "cell-facts muted number");
    const edit = make("button", "button quiet", "Edit");
    edit.type = "button";
    edit.title = "Copy this code into the editor";
    edit.setAttribute("aria-label", `Edit the code of run ${number}`);
    edit.addEventListener("click", () => onEdit(code));
    header.append(make("span", "cell-number muted number", `${number}`), this.badge, this.facts, make("span", "spacer"), edit);
    this.output = make("div", "cell-output");
    this.streams = new RunOutput();
    this.results = new RunResults(outputElement);
    this.output.append(this.streams.element, this.results.element);
    this.element.append(header, codeElement(code, language), this.output);
    this.timer = setInterval(() => this.#showElapsed(), 100);
    this.#showElapsed();
  }

  /** Whether its program has not ended, but waits for events. */
  get isWaiting() {
    return this.outcome === "running";
  }

  /** Shows output while the code runs. */
  addOutput(output) {
    this.streams.add(output);
  }

  /**
   * Shows the end of the run, or what a program that waits for events has done since.
   * @param {object} data An observation of the protocol.
   * @param {boolean} isContinued Whether it continues an earlier one.
   */
  finish({ observation, reward }, { isContinued = false, showReward = false } = {}) {
    const { metadata } = observation;
    clearInterval(this.timer);
    // A look at a program that continues is too short to tell which it does.
    if (!isContinued) this.isDrawing = metadata.idle === "animating";
    // That of a program that continues is known once it ends.
    if (!isContinued || metadata.outcome !== "running") this.seconds = (performance.now() - this.started) / 1000;
    this.outcome = metadata.outcome;
    this.metadata = metadata;
    this.exitCode = observation.exit_code;
    if (isContinued) this.streams.add(observation);
    else this.streams.replace(observation);
    this.results.add(metadata.results ?? []);
    this.#showFacts(showReward ? reward : null);
    this.#showNotes();
  }

  /** Shows that the server refused the code, or that the connection was lost. */
  fail(message) {
    clearInterval(this.timer);
    this.outcome = "refused";
    this.badge.textContent = "not run";
    this.badge.dataset.kind = "bad";
    this.facts.textContent = "";
    const problem = make("p", "cell-note", message);
    problem.dataset.kind = "bad";
    this.output.append(problem);
  }

  /** Shows that a program that continued has ended, of which no more is known. */
  abandon(reason) {
    this.outcome = "ended";
    this.badge.textContent = "ended";
    this.badge.dataset.kind = "neutral";
    for (const note of this.output.querySelectorAll(".cell-note")) note.remove();
    this.output.append(make("p", "cell-note", reason));
  }

  #showElapsed() {
    this.facts.textContent = `${formatSeconds((performance.now() - this.started) / 1000)} of ${this.limit} s`;
  }

  #showFacts(reward) {
    const waits = this.isDrawing ? "still drawing" : "waits for events";
    this.badge.textContent = this.isWaiting ? waits : outcomeLabel(this.outcome);
    this.badge.dataset.kind = outcomeKind(this.outcome);
    const facts = [formatSeconds(this.seconds)];
    if (!this.isWaiting) facts.unshift(`exit code ${this.exitCode}`);
    if (reward !== null) facts.push(`reward ${reward}`);
    this.facts.textContent = facts.join(" · ");
    this.facts.title = "Time from the request to the end of the run";
  }

  #showNotes() {
    for (const note of this.output.querySelectorAll(":scope > .cell-note, :scope > .cell-silent")) note.remove();
    if (this.streams.isEmpty && this.results.isEmpty && !this.isWaiting) this.output.append(make("p", "cell-silent muted", "No output"));
    const notes = [];
    const note = NOTES[this.isWaiting && this.isDrawing ? "animating" : this.outcome];
    if (note) notes.push(note);
    if (this.metadata.idle === "closed") notes.push("Its windows were closed, because it waited for events.");
    if (this.metadata.idle === "animating" && !this.isWaiting) notes.push("It drew without end, and was stopped.");
    if (this.metadata.state_lost) notes.push("The variables were lost: the next run starts with a fresh interpreter.");
    if (this.metadata.safety_violation) notes.push(`The reward “safety” found ${this.metadata.safety_violation}.`);
    for (const text of notes) {
      const element = make("p", "cell-note", text);
      element.dataset.kind = this.isWaiting || this.outcome === "ok" ? "neutral" : "warn";
      this.output.append(element);
    }
  }
}

/** Returns an element with the code; of long code, the first lines until the user asks for more. */
function codeElement(code, language) {
  const pre = make("pre", "cell-code code");
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", "Code of the run");
  const lines = code.split("\n");
  if (lines.length <= LONGEST_CODE_LINES) {
    highlightInto(pre, code, language);
    return pre;
  }
  highlightInto(pre, lines.slice(0, LONGEST_CODE_LINES - 2).join("\n"), language);
  const container = make("div", "cell-code-cut");
  const button = make("button", "button quiet", `Show all ${lines.length} lines`);
  button.type = "button";
  button.addEventListener("click", () => {
    highlightInto(pre, code, language);
    button.remove();
    pre.focus();
  });
  container.append(pre, button);
  return container;
}
