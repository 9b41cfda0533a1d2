// The filters above the list of episodes.

import { html, nothing } from "/static/common/vendor/lit-html/lit-html.js";
import { live } from "/static/common/vendor/lit-html/directives/live.js";
import { spelledOut } from "/static/common/text.js";
import { counted, duration } from "./format.js";
import { MOST_NAMES } from "./plots.js";
import { frequencies, NONE } from "./rows.js";

/**
 * Returns the fields of the filters.
 * @param {import("./rows.js").Rows} rows
 * @param {Record<string, string>} filters Filters that are set.
 * @param {object} actions
 * @param {(changes: Record<string, string>) => void} actions.filter Called with changed filters.
 * @param {() => void} actions.clear Called to remove all filters.
 */
export function filtersTemplate(rows, filters, { filter, clear }) {
  const choice = (name, label, names, column) => {
    const { codes } = frequencies(names, column, rows.length);
    const values = codes.slice(0, MOST_NAMES).map((code) => names[code] || NONE);
    const chosen = filters[name];
    if (chosen && !values.includes(chosen)) values.push(chosen);
    const others = Math.max(0, codes.length - values.length);
    return html`
      <select class="field" aria-label=${label} .value=${live(chosen ?? "")} @change=${(event) => filter({ [name]: event.target.value })}>
        <option value="">${label}: any</option>
        ${values.map((value) => html`<option value=${value} ?selected=${chosen === value}>${spelledOut(value)}</option>`)}
        ${others ? html`<option disabled>${counted(others, "other")}</option>` : nothing}
      </select>
    `;
  };
  const limit = (name, label) => html`
    <input
      class="field limit number"
      inputmode="decimal"
      aria-label=${label}
      placeholder=${label.toLowerCase().replace("reward of ", "").replace("at ", "")}
      .value=${live(filters[name] ?? "")}
      @change=${(event) => filter({ [name]: event.target.value.trim().replace("−", "-").replace(",", ".") })}
    />
  `;
  const active = Object.entries(filters).filter(([name]) => /Steps|Time/.test(name));
  return html`
    <input
      class="field search"
      type="search"
      aria-label="Search tasks"
      placeholder="Task or episode number  ( / )"
      .value=${live(filters.text ?? "")}
      @input=${(event) => filter({ text: event.target.value })}
    />
    ${choice("result", "Result", rows.results, rows.columns.result)} ${choice("outcome", "Outcome", rows.outcomes, rows.columns.outcome)} ${choice("ending", "Ending", rows.endings, rows.columns.ending)}
    <span class="range" role="group" aria-label="Reward">
      <span class="muted">Reward</span> ${limit("min", "Reward of at least")} ${limit("max", "Reward of at most")}
    </span>
    ${active.map(
      ([name, value]) => html`<button class="button" title="Remove this filter" @click=${() => filter({ [name]: "" })}>
        ${name.endsWith("Steps") ? "steps" : "time"} ${name.startsWith("min") ? "≥" : "≤"}
        ${name.endsWith("Steps") ? value : duration(Number(value))} ✕
      </button>`,
    )}
    ${Object.keys(filters).length ? html`<button class="button quiet" @click=${() => clear()}>Clear</button>` : nothing}
  `;
}
