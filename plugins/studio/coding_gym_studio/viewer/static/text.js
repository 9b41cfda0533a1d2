// Long texts: loaded in parts, and added to the page a part per frame, so that a megabyte does not block it.

import { TerminalText } from "/static/common/terminal.js";
import { getJson } from "./api.js";
import { characters } from "./format.js";

const FIRST = 32_768;
const PART = 262_144;
/** Characters of one element: browsers lay out and paint only those elements that are near the visible part. */
const BLOCK = 16_384;

/** A text of a step, in an element. */
export class LongText {
  /**
   * @param {string} path Address of the text, with a query.
   * @param {object} options
   * @param {string} options.label Name of the text, for assistive technology.
   * @param {string} [options.kind] Class of the text's element.
   */
  constructor(path, { label, kind = "" }) {
    this.path = path;
    this.shown = 0;
    this.total = null;
    this.rest = "";
    this.terminal = new TerminalText();
    this.aborter = new AbortController();
    this.element = document.createElement("div");
    this.element.className = "long-text";
    this.output = document.createElement("div");
    this.output.className = `output ${kind}`;
    this.output.tabIndex = 0;
    this.output.setAttribute("role", "region");
    this.output.setAttribute("aria-label", label);
    this.more = document.createElement("div");
    this.more.className = "toolbar more";
    this.element.append(this.output, this.more);
    void this.#guarded(() => this.#load(FIRST));
  }

  close() {
    this.aborter.abort();
  }

  async #guarded(action) {
    try {
      await action();
      this.#offer();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.more.replaceChildren(error.message);
    }
  }

  async #load(count) {
    const query = `start=${this.shown}&count=${count}`;
    const { text, total } = await getJson(`${this.path}&${query}`, this.aborter.signal);
    this.total = total;
    // The server counts code points.
    this.shown += [...text].length;
    await this.#append(text, this.shown >= total);
  }

  /** Adds text in elements that end at ends of lines. */
  async #append(text, isLast) {
    let left = this.rest + text;
    this.rest = "";
    while (left) {
      let size = Math.min(BLOCK, left.length);
      if (size < left.length || !isLast) {
        const end = left.lastIndexOf("\n", size - 1) + 1;
        if (end > 0) size = end;
        else if (left.length <= BLOCK && !isLast) {
          this.rest = left;
          break;
        }
      }
      const block = document.createElement("div");
      block.className = "block";
      block.append(this.terminal.render(left.slice(0, size).replace(/\n$/, "") || "\n"));
      this.output.append(block);
      left = left.slice(size);
      if (left) await new Promise(requestAnimationFrame);
      if (this.aborter.signal.aborted) return;
    }
  }

  #offer() {
    this.more.replaceChildren();
    if (this.total === 0) this.output.textContent = "";
    if (this.shown >= this.total) return;
    const note = document.createElement("span");
    note.className = "muted";
    note.textContent = `${characters(this.shown)} of ${characters(this.total)} are shown.`;
    this.more.append(note, this.#button("Show more", () => this.#load(PART)), this.#button("Show all", () => this.#loadAll()));
  }

  async #loadAll() {
    while (this.shown < this.total) await this.#load(PART);
  }

  #button(label, action) {
    const button = document.createElement("button");
    button.className = "button";
    button.textContent = label;
    button.addEventListener("click", () => {
      this.more.replaceChildren("Loading …");
      void this.#guarded(action);
    });
    return button;
  }
}
