// Output of programs: it grows, and of long output the beginning is shown until all of it is wanted.

import { lastWritten, TerminalText } from "../common/terminal.js";

/** Characters of a chunk; those of the first one are shown at once. */
const CHUNK = 32_000;
const LEAST_SPACE = 100;
/** Numbers of chunks that are kept of long output: at its beginning, and in all. */
const HEAD_CHUNKS = 32;
const MOST_CHUNKS = 64;
/** Pixels from the end of a text below which it follows what is added. */
const NEAR_END = 40;

function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Returns how much of a text fits into `space` characters: whole lines if that leaves at most half of it empty. */
function fitting(text, space) {
  if (text.length <= space) return text.length;
  const newline = text.lastIndexOf("\n", space - 1) + 1;
  if (newline > space / 2) return newline;
  // Not between the halves of a surrogate pair, and not within a short control sequence.
  const escape = text.lastIndexOf("\x1b", space - 1);
  if (escape > 0 && space - escape < 20) return escape;
  return /[\ud800-\udbff]/.test(text[space - 1]) ? space - 1 : space;
}

/** A stream of output, with its element. */
export class StreamOutput {
  /**
   * @param {string} stream Its label, such as stdout.
   * @param {string} [text] What it begins with.
   */
  constructor(stream, text = "") {
    this.element = make("div", `stream stream-${stream}`);
    this.pre = make("pre", "output");
    // Scrollable regions need the focus for the arrow keys.
    this.pre.tabIndex = 0;
    this.pre.setAttribute("role", "region");
    this.pre.setAttribute("aria-label", stream);
    this.button = make("button", "button");
    this.button.type = "button";
    this.button.hidden = true;
    this.button.addEventListener("click", () => {
      this.isExpanded = true;
      this.#showMore();
    });
    this.element.append(make("span", "stream-label", stream), this.pre, this.button);
    this.isExpanded = false;
    this.isShowing = false;
    this.#clear();
    this.add(text);
  }

  /** Adds text, which may end anywhere: within a line, or within a control sequence. */
  add(text) {
    const { pre } = this;
    const isAtEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < NEAR_END;
    // The last line changes until it ends, for example because a progress bar returns to its beginning.
    const lines = this.line + text;
    const end = lines.lastIndexOf("\n") + 1;
    let line = lastWritten(lines.slice(end));
    let settled = lines.slice(0, end);
    if (line.length > CHUNK) {
      const start = fitting(line, line.length - 1);
      settled += line.slice(0, start);
      line = line.slice(start);
    }
    this.lineElement.remove();
    this.#settle(settled);
    this.line = line;
    this.#showMore();
    if (isAtEnd && pre.scrollTop + pre.clientHeight < pre.scrollHeight) pre.scrollTop = pre.scrollHeight;
  }

  /** Shows another text instead. */
  replace(text) {
    const { scrollTop } = this.pre;
    this.#clear();
    this.add(text);
    this.pre.scrollTop = scrollTop;
  }

  #clear() {
    /** Whole lines as `{text, element}`; the element is null until the chunk is shown. */
    this.chunks = [];
    this.isLastFull = true;
    this.omitted = 0;
    this.terminal = new TerminalText();
    /** The last line, as long as it has no end. */
    this.line = "";
    this.lineElement = make("span", "output-line");
    this.gap = make("div", "output-gap muted");
    this.pre.replaceChildren();
  }

  /** Adds text that does not change any more. */
  #settle(text) {
    for (let start = 0; start < text.length; ) {
      if (this.isLastFull) this.#addChunk();
      const chunk = this.chunks.at(-1);
      const rest = text.slice(start);
      const length = fitting(rest, CHUNK - chunk.text.length);
      const part = rest.slice(0, length);
      chunk.text += part;
      chunk.element?.append(this.terminal.render(part));
      this.isLastFull = length < rest.length || chunk.text.length > CHUNK - LEAST_SPACE;
      start += length;
    }
  }

  #addChunk() {
    this.chunks.push({ text: "", element: null });
    if (this.chunks.length <= MOST_CHUNKS) return;
    const [left] = this.chunks.splice(HEAD_CHUNKS, 1);
    left.element?.remove();
    this.omitted += left.text.length;
    this.gap.textContent = `… ${this.omitted.toLocaleString("en")} characters left out …`;
    // Where they were shown, the next one follows the gap.
    if (left.element) this.chunks[HEAD_CHUNKS - 1].element.after(this.gap);
  }

  /** Shows the chunks that are to be shown, one a frame, and then the last line. */
  async #showMore() {
    this.#showButton();
    if (this.isShowing) return;
    this.isShowing = true;
    while (this.#nextHidden() >= 0) {
      this.#showChunk(this.#nextHidden());
      if (this.#nextHidden() >= 0) await new Promise(requestAnimationFrame);
    }
    this.isShowing = false;
    if (this.chunks.some(({ element }) => element === null)) return;
    this.lineElement.replaceChildren(this.terminal.copy().render(this.line));
    (this.chunks.at(-1)?.element ?? this.pre).append(this.lineElement);
  }
  /** Returns the index of the next chunk to be shown, or -1. */
  #nextHidden() {
    const index = this.chunks.findIndex(({ element }) => element === null);
    return this.isExpanded || index === 0 ? index : -1;
  }

  #showChunk(index) {
    const chunk = this.chunks[index];
    if (index === HEAD_CHUNKS && this.omitted > 0) this.pre.append(this.gap);
    // Laid out only where it is visible.
    chunk.element = make("div", "output-chunk");
    chunk.element.append(this.terminal.render(chunk.text));
    this.pre.append(chunk.element);
  }

  #showButton() {
    this.button.hidden = this.isExpanded || this.chunks.length <= 1;
    if (this.button.hidden) return;
    const kept = this.chunks.reduce((sum, { text }) => sum + text.length, this.line.length);
    const [some, all] = [kept, kept + this.omitted].map((count) => count.toLocaleString("en"));
    this.button.textContent = this.omitted > 0 ? `Show ${some} of ${all} characters` : `Show all ${all} characters`;
  }
}

/** Returns an element with output that does not grow. */
export function outputElement(stream, text) {
  return new StreamOutput(stream, text).element;
}

/** What a run has written to stdout and stderr, with its element. */
export class RunOutput {
  constructor() {
    this.element = make("div", "cell-streams");
    this.streams = new Map();
  }

  get isEmpty() {
    return this.streams.size === 0;
  }

  /** Adds output as `{stdout, stderr}`, of which either may be missing. */
  add(output) {
    for (const name of ["stdout", "stderr"]) if (output[name]) this.#stream(name).add(output[name]);
  }

  /** Shows other output instead. */
  replace(output) {
    for (const name of ["stdout", "stderr"]) {
      if (output[name]) this.#stream(name).replace(output[name]);
      else this.streams.get(name)?.element.remove();
      if (!output[name]) this.streams.delete(name);
    }
  }

  #stream(name) {
    let stream = this.streams.get(name);
    if (!stream) {
      stream = new StreamOutput(name);
      this.streams.set(name, stream);
      if (name === "stdout") this.element.prepend(stream.element);
      else this.element.append(stream.element);
    }
    return stream;
  }
}
