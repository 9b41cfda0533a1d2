// Keys of browsers as the input events of the protocol.

const NAMES = {
  ArrowDown: "Down",
  ArrowLeft: "Left",
  ArrowRight: "Right",
  ArrowUp: "Up",
  Backspace: "BackSpace",
  ContextMenu: "Menu",
  Delete: "Delete",
  End: "End",
  Enter: "Return",
  Escape: "Escape",
  Home: "Home",
  Insert: "Insert",
  PageDown: "Next",
  PageUp: "Prior",
  Pause: "Pause",
  PrintScreen: "Print",
  Tab: "Tab",
};
const FUNCTION_KEY = /^F([1-9]|1\d|2[0-4])$/;

function modifiersOf(event, withShift) {
  const names = [];
  if (event.ctrlKey) names.push("ctrl");
  if (event.altKey) names.push("alt");
  if (event.metaKey) names.push("super");
  if (withShift && event.shiftKey) names.push("shift");
  return names;
}

/**
 * Returns the input event for a key that is pressed, or null if it has no effect of its own.
 * @param {KeyboardEvent} event
 */
export function inputOfKey(event) {
  const { key } = event;
  if (event.isComposing || key === "Process") return null;
  const isCharacter = [...key].length === 1;
  // With AltGr, Ctrl and Alt are part of the character.
  const modifiers = event.getModifierState("AltGraph") ? [] : modifiersOf(event, !isCharacter || event.ctrlKey || event.altKey);
  if (isCharacter && modifiers.length === 0) return { type: "text", text: key };
  const name = isCharacter ? (key === " " ? "space" : key === "+" ? "plus" : key.toLowerCase()) : (NAMES[key] ?? (FUNCTION_KEY.test(key) ? key : null));
  return name === null ? null : { type: "key", key: [...modifiers, name].join("+") };
}
