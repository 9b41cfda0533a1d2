// Texts of programs, which may contain escape sequences of terminals: colors are shown, everything else is removed.

import { spelledOut } from "./format.js";

/** Sequences of colors, other control sequences, titles of windows, other escapes, and control characters. */
const SEQUENCE =
  /\x1b\[([\d;:]*)m|\x1b\[[\d;:?<=>]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;

class Style {
  color = "";
  isBold = false;

  apply(codes) {
    const list = (codes || "0").split(/[;:]/).map(Number);
    for (let at = 0; at < list.length; at++) {
      const code = list[at];
      if (code === 0) Object.assign(this, { color: "", isBold: false });
      else if (code === 1) this.isBold = true;
      else if (code === 22) this.isBold = false;
      else if (code >= 30 && code <= 37) this.color = `ansi-${code - 30}`;
      else if (code >= 90 && code <= 97) this.color = `ansi-${code - 90}`;
      else if (code === 39) this.color = "";
      else if (code === 38 || code === 48) at += list[at + 1] === 5 ? 2 : 4;
    }
  }

  get classes() {
    return `${this.color}${this.isBold ? " ansi-bold" : ""}`.trim();
  }
}

/** Returns the nodes of a text. */
export function ansiNodes(text) {
  if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(text)) return [document.createTextNode(spelledOut(text))];
  const nodes = [];
  const style = new Style();
  const add = (piece) => {
    if (!piece) return;
    const node = document.createTextNode(spelledOut(piece));
    if (!style.classes) return nodes.push(node);
    const span = document.createElement("span");
    span.className = style.classes;
    span.append(node);
    nodes.push(span);
  };
  let end = 0;
  for (const match of text.replaceAll("\r\n", "\n").matchAll(SEQUENCE)) {
    const source = match.input;
    add(source.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1] !== undefined) style.apply(match[1]);
    else if (!match[0].startsWith("\x1b")) add(String.fromCharCode(0x2400 + (match[0].charCodeAt(0) & 0x7f)));
  }
  add(text.replaceAll("\r\n", "\n").slice(end));
  return nodes;
}
