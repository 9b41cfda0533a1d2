// Plots of the episodes: outcomes, and distributions of rewards, lengths and times. A click on a bar filters by it.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { outcomeKind } from "/static/common/outcome.js";
import { spelledOut } from "/static/common/text.js";
import { count, counted, duration, reward } from "./format.js";
import { frequencies, NONE } from "./rows.js";

const BINS = 24;
/** Number of names that have their own bar: an environment may have thousands of outcomes. */
export const MOST_NAMES = 50;
/** Share of the largest values that are collected in the last bin, so that a few do not squeeze the others. */
const TAIL = 0.005;

/** Returns the limits of bins for values. */
function edgesOf(values, isWhole) {
  const known = values.filter((value) => value === value);
  if (!known.length) return [];
  known.sort();
  const low = known[0];
  const last = known[known.length - 1];
  let high = known[Math.floor((known.length - 1) * (1 - TAIL))];
  if (last - low <= (high - low) * 1.5) high = last;
  if (high === low) return [low, low];
  if (isWhole && high - low < BINS * 4) {
    const width = Math.max(1, Math.ceil((high - low + 1) / BINS));
    return Array.from({ length: Math.ceil((high - low + 1) / width) + 1 }, (_, at) => low + at * width);
  }
  return Array.from({ length: BINS + 1 }, (_, at) => low + ((high - low) * at) / BINS);
}

function fill(edges, column, found) {
  const bins = new Uint32Array(Math.max(edges.length - 1, 0));
  if (!bins.length) return bins;
  const low = edges[0];
  const width = (edges[edges.length - 1] - low) / bins.length || 1;
  for (const row of found) {
    const value = column[row];
    if (value === value) bins[Math.min(bins.length - 1, Math.max(0, Math.floor((value - low) / width + 1e-9)))]++;
  }
  return bins;
}

export class Plots {
  /**
   * @param {HTMLElement} place
   * @param {(changes: Record<string, string | undefined>) => void} onFilter Called with changed filters.
   */
  constructor(place, onFilter) {
    this.place = place;
    this.onFilter = onFilter;
  }

  /** Draws the plots of the rows, with the found ones in front. */
  show(rows, found, filters) {
    const all = { length: rows.length, *[Symbol.iterator]() { for (let row = 0; row < rows.length; row++) yield row; } };
    const plots = [
      this.#categories("Results", rows.results, rows.columns.result, rows, found, filters, "result"),
      this.#categories("Outcomes of the last step", rows.outcomes, rows.columns.outcome, rows, found, filters, "outcome"),
      this.#histogram("Rewards", "reward", rows, all, found, filters, ["min", "max"], reward),
      this.#histogram("Lengths, in steps", "steps", rows, all, found, filters, ["minSteps", "maxSteps"], count, true),
      rows.hasTimes
        ? this.#histogram("Times", "seconds", rows, all, found, filters, ["minTime", "maxTime"], duration)
        : { title: "Times", bars: [], note: rows.isReading ? "Being read …" : "Not recorded in this dataset." },
    ];
    render(html`${plots.map((plot) => this.#plot(plot))}`, this.place);
    for (const column of this.place.querySelectorAll("[data-share]")) {
      column.style.setProperty("--share", column.dataset.share);
    }
  }

  #categories(title, names, column, rows, found, filters, filter) {
    const { codes, totals } = frequencies(names, column, rows.length);
    const counts = new Uint32Array(names.length);
    for (const row of found) counts[column[row]]++;
    const bars = codes.slice(0, MOST_NAMES).map((code) => {
      const value = names[code] || NONE;
      const isChosen = filters[filter] === value;
      return {
        label: spelledOut(value),
        total: totals[code],
        count: counts[code],
        kind: { solved: "good", unsolved: "bad" }[value] ?? outcomeKind(value),
        isChosen,
        choose: () => this.onFilter({ [filter]: isChosen ? undefined : value }),
      };
    });
    const others = codes.slice(MOST_NAMES);
    if (others.length) {
      const sum = (numbers) => others.reduce((total, code) => total + numbers[code], 0);
      bars.push({ label: counted(others.length, "other"), total: sum(totals), count: sum(counts), kind: "neutral" });
    }
    return { title, bars, isRows: true };
  }

  #histogram(title, name, rows, all, found, filters, [min, max], format, isWhole = false) {
    const column = rows.columns[name];
    const edges = edgesOf(column.slice(0, rows.length), isWhole);
    const totals = fill(edges, column, all);
    const counts = fill(edges, column, found);
    const bars = [...totals].map((total, at) => {
      const isLast = at === totals.length - 1;
      const low = edges[at];
      const high = edges[at + 1];
      // Limits of filters are inclusive.
      const limits = {
        [min]: at ? String(low) : undefined,
        [max]: isLast ? undefined : String(isWhole ? high - 1 : below(high)),
      };
      const isChosen = (filters[min] || filters[max]) && filters[min] === limits[min] && filters[max] === limits[max];
      const end = isLast && high !== low ? "or more" : isWhole && high - low === 1 ? "" : `to ${format(isWhole ? high - 1 : high)}`;
      return {
        label: `${format(low)} ${end}`.trim(),
        total,
        count: counts[at],
        isChosen,
        choose: () => this.onFilter(isChosen ? { [min]: undefined, [max]: undefined } : limits),
      };
    });
    const values = edges.length ? [edges[0], edges[edges.length - 1]] : [];
    return { title, bars, axis: values.map(format), note: bars.length ? null : "There are no values." };
  }

  #plot({ title, bars, axis, note, isRows }) {
    const most = Math.max(1, ...bars.map((bar) => bar.total));
    const keys = (event) => this.#move(event);
    const bar = (item, at) => html`
      <button
        class="bar"
        data-kind=${item.kind ?? "accent"}
        aria-pressed=${item.isChosen ? "true" : "false"}
        aria-label=${`${item.label}: ${count(item.count)} of ${count(item.total)} episodes`}
        title=${`${item.label}: ${count(item.count)} of ${count(item.total)}`}
        tabindex=${at ? "-1" : "0"}
        ?disabled=${!item.choose}
        @click=${item.choose}
      >
        ${isRows ? html`<span class="bar-label">${item.label}</span>` : nothing}
        <span class="bar-track">
          <span class="bar-total" data-share=${item.total / most}></span>
          <span class="bar-count" data-share=${item.count / most}></span>
        </span>
        ${isRows ? html`<span class="bar-number number">${count(item.count)}</span>` : nothing}
      </button>
    `;
    return html`
      <section class="plot panel">
        <h3>${title}</h3>
        ${note
          ? html`<p class="muted">${note}</p>`
          : html`<div class=${isRows ? "bars rows" : "bars"} role="group" aria-label=${title} @keydown=${keys}>${bars.map(bar)}</div>`}
        ${axis?.length && !note ? html`<p class="axis number"><span>${axis[0]}</span><span>${axis[1]}</span></p>` : nothing}
        ${note
          ? nothing
          : html`<details class="as-table">
              <summary>Table<span class="visually-hidden"> of ${title}</span></summary>
              <table class="data">
                <thead>
                  <tr><th scope="col">value</th><th scope="col">shown</th><th scope="col">all</th></tr>
                </thead>
                <tbody>
                  ${bars.map((item) => html`<tr><td>${item.label}</td><td class="number">${count(item.count)}</td><td class="number">${count(item.total)}</td></tr>`)}
                </tbody>
              </table>
            </details>`}
      </section>
    `;
  }

  #move(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const bars = [...event.currentTarget.querySelectorAll(".bar:enabled")];
    const at = bars.indexOf(document.activeElement) + step;
    bars[Math.min(bars.length - 1, Math.max(0, at))]?.focus();
  }
}

/** Returns the largest number below another one that is as good as equal to it. */
function below(value) {
  return value - Math.max(Math.abs(value), 1e-6) * 1e-9;
}
