// Output of programs: long output is cut, and inserted bit by bit when all of it is wanted.

import { TerminalText } from "./ansi.js";

/** Characters that are shown at once. */
const SHOWN = 40_000;
const CHUNK = 32_000;

function chunkEnd(text, start) {
  let end = Math.min(start + CHUNK, text.length);
  const newline = text.lastIndexOf("\n", end - 1) + 1;
  if (end < text.length && newline > start) end = newline;
  // Not between the halves of a surrogate pair.
  else if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end--;
  return end;
}

/** Inserts text in chunks, each in an element that is laid out only where it is visible. */
async function insert(parent, terminal, text) {
  for (let start = 0; start < text.length; ) {
    const end = chunkEnd(text, start);
    const chunk = document.createElement("div");
    chunk.className = "output-chunk";
    chunk.append(terminal.render(text.slice(start, end)));
    parent.append(chunk);
    start = end;
    if (start < text.length) await new Promise(requestAnimationFrame);
  }
}

/**
 * Returns an element with output.
 * @param {"stdout" | "stderr" | "value"} stream
 * @param {string} text
 */
export function outputElement(stream, text) {
  const element = document.createElement("div");
  element.className = `stream stream-${stream}`;
  const label = document.createElement("span");
  label.className = "stream-label";
  label.textContent = stream;
  const pre = document.createElement("pre");
  pre.className = "output";
  // Scrollable regions need the focus for the arrow keys.
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", stream);
  element.append(label, pre);
  const shown = text.length > SHOWN ? text.slice(0, chunkEnd(text.slice(0, SHOWN), SHOWN - CHUNK)) : text;
  insert(pre, new TerminalText(), shown);
  if (shown.length < text.length) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button";
    button.textContent = `Show all ${text.length.toLocaleString("en")} characters`;
    button.addEventListener("click", () => {
      button.remove();
      pre.replaceChildren();
      insert(pre, new TerminalText(), text);
    });
    element.append(button);
  }
  return element;
}

/** The output of a running step, which grows. */
export class LiveOutput {
  constructor() {
    this.element = document.createElement("div");
    this.streams = new Map();
    this.length = 0;
  }

  /** Adds what a message `output` has. */
  add(output) {
    for (const stream of ["stdout", "stderr"]) {
      const text = output[stream];
      if (!text || this.length > SHOWN) continue;
      this.length += text.length;
      let target = this.streams.get(stream);
      if (!target) {
        const element = outputElement(stream, "");
        this.element.append(element);
        target = { pre: element.querySelector("pre"), terminal: new TerminalText() };
        this.streams.set(stream, target);
      }
      const isAtEnd = target.pre.scrollHeight - target.pre.scrollTop - target.pre.clientHeight < 40;
      target.pre.append(target.terminal.render(text));
      if (isAtEnd) target.pre.scrollTop = target.pre.scrollHeight;
    }
  }
}
