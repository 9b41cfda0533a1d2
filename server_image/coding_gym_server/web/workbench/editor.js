// The editor: a text area, and behind it the same text, highlighted.

import { highlightInto } from "../common/highlight.js";

const INDENT = "    ";
const DRAFT_KEY = "coding-gym-draft";
const OPENS_BLOCK = /[:{([]\s*$/;

function storedDraft() {
  try {
    return sessionStorage.getItem(DRAFT_KEY) ?? "";
  } catch {
    return "";
  }
}

/** A code editor. */
export class Editor {
  /**
   * @param {object} handlers
   * @param {() => void} handlers.onRun Called when the keyboard asks to run the code.
   * @param {() => void} handlers.onChange Called when the code has changed.
   */
  constructor({ onRun, onChange }) {
    this.language = "python";
    this.onRun = onRun;
    this.onChange = onChange;
    this.past = [];
    this.position = 0;
    this.unfinished = "";
    this.tabLeaves = false;
    this.layer = document.createElement("pre");
    this.layer.className = "editor-layer code";
    this.layer.setAttribute("aria-hidden", "true");
    this.area = document.createElement("textarea");
    this.area.id = "code";
    this.area.className = "editor-area code";
    this.area.spellcheck = false;
    this.area.rows = 1;
    this.area.placeholder = "Code to run";
    for (const [name, value] of Object.entries({ autocapitalize: "off", autocomplete: "off", autocorrect: "off", wrap: "off" })) {
      this.area.setAttribute(name, value);
    }
    this.area.setAttribute("aria-label", "Code");
    this.area.setAttribute("aria-describedby", "editor-keys");
    this.area.addEventListener("input", () => this.#changed());
    this.area.addEventListener("keydown", (event) => this.#onKey(event));
    this.area.addEventListener("blur", () => (this.tabLeaves = false));
    this.element = document.createElement("div");
    this.element.className = "editor";
    this.element.append(this.layer, this.area);
    this.code = storedDraft();
  }

  get code() {
    return this.area.value;
  }

  set code(code) {
    this.area.value = code;
    this.#changed();
  }

  setLanguage(language) {
    this.language = language;
    this.#changed();
  }

  focus() {
    this.area.focus();
  }

  /** Keeps code for Alt+Up. */
  remember(code) {
    if (this.past.at(-1) !== code) this.past.push(code);
    this.position = this.past.length;
  }

  #changed() {
    // A last empty line has a height only if something follows it.
    highlightInto(this.layer, `${this.area.value}\n`, this.language);
    try {
      sessionStorage.setItem(DRAFT_KEY, this.area.value);
    } catch {
      // Storage is disabled, or the code is too long.
    }
    this.onChange();
  }

  #onKey(event) {
    // Enter and Tab may belong to an input method.
    if (event.isComposing) return;
    const { key } = event;
    if (key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
      event.preventDefault();
      this.onRun();
    } else if (key === "Enter" && !event.altKey) {
      event.preventDefault();
      this.#newLine();
    } else if (key === "Escape") {
      this.tabLeaves = true;
      return;
    } else if (key === "Tab" && !this.tabLeaves && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      this.#indent(event.shiftKey);
    } else if (event.altKey && (key === "ArrowUp" || key === "ArrowDown") && this.past.length > 0) {
      event.preventDefault();
      this.#recall(key === "ArrowUp" ? -1 : 1);
    }
    if (key !== "Tab" && key !== "Shift") this.tabLeaves = false;
  }

  #recall(step) {
    if (this.position === this.past.length) this.unfinished = this.code;
    this.position = Math.min(Math.max(this.position + step, 0), this.past.length);
    this.code = this.past[this.position] ?? this.unfinished;
    this.area.setSelectionRange(this.code.length, this.code.length);
  }

  /** Inserts text as if it was typed, so that the browser can undo it. */
  #type(text) {
    // There is no other way into the browser's list of changes.
    if (!document.execCommand("insertText", false, text)) {
      this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
      this.#changed();
    }
  }

  #newLine() {
    const before = this.area.value.slice(0, this.area.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const indentation = /^[ \t]*/.exec(line)[0];
    this.#type(`\n${indentation}${OPENS_BLOCK.test(line) ? INDENT : ""}`);
  }

  #indent(isOutwards) {
    const { value, selectionStart, selectionEnd } = this.area;
    if (!isOutwards && selectionStart === selectionEnd) {
      const column = selectionStart - (value.lastIndexOf("\n", selectionStart - 1) + 1);
      this.#type(INDENT.slice(column % INDENT.length));
      return;
    }
    const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
    let end = value.indexOf("\n", Math.max(selectionEnd - 1, start));
    if (end < 0) end = value.length;
    const lines = value.slice(start, end).split("\n");
    const changed = lines.map((line) => (isOutwards ? line.replace(/^( {1,4}|\t)/, "") : line && INDENT + line)).join("\n");
    if (changed === value.slice(start, end)) return;
    this.area.setSelectionRange(start, end);
    this.#type(changed);
    if (selectionStart === selectionEnd) {
      const caret = Math.max(start, selectionStart - (lines[0].length - changed.length));
      this.area.setSelectionRange(caret, caret);
    } else this.area.setSelectionRange(start, start + changed.length);
  }
}
