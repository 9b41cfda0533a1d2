// Highlighted code, without HTML of the code's own: highlight.js escapes what it is given.

import core from "./vendor/highlight/core.js";
import bash from "./vendor/highlight/languages/bash.js";
import javascript from "./vendor/highlight/languages/javascript.js";
import json from "./vendor/highlight/languages/json.js";
import python from "./vendor/highlight/languages/python.js";
import typescript from "./vendor/highlight/languages/typescript.js";

for (const [name, grammar] of Object.entries({ bash, javascript, json, python, typescript })) {
  core.registerLanguage(name, grammar);
}

/** Characters beyond which code is shown plainly: highlighting it would block the page. */
const LONGEST = 100_000;

/**
 * Shows code in an element.
 * @param {Element} element
 * @param {string} code
 * @param {string} language Name of the language; code of an unknown one is shown plainly.
 */
export function highlightInto(element, code, language) {
  if (code.length > LONGEST || !core.getLanguage(language)) {
    element.textContent = code;
    return;
  }
  element.innerHTML = core.highlight(code, { language, ignoreIllegals: true }).value;
}
