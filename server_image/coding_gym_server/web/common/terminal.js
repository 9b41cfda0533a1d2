// Text of programs as nodes: colors of terminals become classes, all other control sequences disappear.

import { visible } from "./text.js";

const SEQUENCE = /\x1b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|[ -/]*[0-~]?)/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/** Returns what remains of a line with carriage returns, such as that of a progress bar: the text after the last one. */
function withoutOverwritten(text) {
  if (!text.includes("\r")) return text;
  return text
    .replaceAll("\r\n", "\n")
    .split("\n")
    .map((line) => lastWritten(line).replaceAll("\r", ""))
    .join("\n");
}

/** Returns what later text can still change of a line without an end: the text after the last carriage return that text follows. */
export function lastWritten(line) {
  return line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1);
}

/** Returns a whole text as nodes. */
export function terminalNodes(text) {
  return [...new TerminalText().render(text).childNodes];
}

/** Returns a text without control sequences. */
export function plainText(text) {
  return visible(withoutOverwritten(text).replace(SEQUENCE, ""));
}

/** Text with the style that it has begun with and ends with. */
export class TerminalText {
  constructor() {
    this.style = { color: null, isBold: false, isDim: false, isItalic: false, isUnderlined: false };
  }

  /** Returns a terminal with the present style. */
  copy() {
    const copy = new TerminalText();
    copy.style = { ...this.style };
    return copy;
  }

  /** Returns a fragment with the text. */
  render(text) {
    const fragment = document.createDocumentFragment();
    const source = withoutOverwritten(text);
    let end = 0;
    for (const match of source.matchAll(SEQUENCE)) {
      this.#append(fragment, source.slice(end, match.index));
      end = match.index + match[0].length;
      if (match[2] === "m") this.#apply(match[1]);
    }
    this.#append(fragment, source.slice(end));
    return fragment;
  }

  #append(fragment, text) {
    if (!text) return;
    const classes = this.#classes();
    if (classes.length === 0) {
      fragment.append(visible(text));
      return;
    }
    const span = document.createElement("span");
    span.className = classes.join(" ");
    span.textContent = visible(text);
    fragment.append(span);
  }

  #classes() {
    const { color, isBold, isDim, isItalic, isUnderlined } = this.style;
    return [
      color && `ansi-${color}`,
      isBold && "ansi-bold",
      isDim && "ansi-dim",
      isItalic && "ansi-italic",
      isUnderlined && "ansi-underlined",
    ].filter(Boolean);
  }

  #apply(parameters) {
    const codes = parameters.split(/[;:]/).map(Number);
    for (let index = 0; index < codes.length; index++) {
      const code = codes[index];
      if (code === 0) this.style = new TerminalText().style;
      else if (code === 1) this.style.isBold = true;
      else if (code === 2) this.style.isDim = true;
      else if (code === 3) this.style.isItalic = true;
      else if (code === 4) this.style.isUnderlined = true;
      else if (code === 22) this.style.isBold = this.style.isDim = false;
      else if (code === 23) this.style.isItalic = false;
      else if (code === 24) this.style.isUnderlined = false;
      else if (code >= 30 && code <= 37) this.style.color = NAMES[code - 30];
      else if (code >= 90 && code <= 97) this.style.color = NAMES[code - 90];
      else if (code === 39) this.style.color = null;
      else if (code === 38 || code === 48) {
        // Palettes of 256 colors and of all: the first sixteen have names, the others keep the color of the text.
        const isPalette = codes[index + 1] === 5;
        if (code === 38) this.style.color = isPalette && codes[index + 2] < 16 ? NAMES[codes[index + 2] % 8] : null;
        index += isPalette ? 2 : 4;
      }
    }
  }
}
