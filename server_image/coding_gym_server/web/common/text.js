// Text that shows what it contains, also if its author wants to hide that.

const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
/** Characters that reorder the text around them, with which code can pretend to be other code. */
const REORDERING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Returns a text in which characters that reorder text are spelled out. */
export function spelledOut(text) {
  return text.replace(REORDERING, (character) => `⟨U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Returns a text in which control characters are the pictures that Unicode has of them, and others are spelled out. */
export function visible(text) {
  return spelledOut(text).replace(CONTROL, (character) =>
    String.fromCharCode(character === "\x7f" ? 0x2421 : 0x2400 + character.charCodeAt(0)),
  );
}
