// The list of episodes: filters, plots, and a virtual list that is sorted by its columns.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { spelledOut } from "/static/common/text.js";
import { VirtualList } from "/static/common/virtual-list.js";
import { dataset } from "./dataset.js";
import { filtersTemplate } from "./filters.js";
import { count, counted, duration, reward } from "./format.js";
import { Plots } from "./plots.js";
import { FILTERS, select } from "./rows.js";

const COLUMNS = [
  ["episode", "Episode"],
  ["task", "Task"],
  ["result", "Result"],
  ["outcome", "Outcome"],
  ["passed", "Tests"],
  ["steps", "Steps"],
  ["reward", "Reward"],
  ["seconds", "Time"],
];
const PLOTS_KEY = "coding-gym-view-plots";
const RESULT_KINDS = { solved: "good", unsolved: "bad", unknown: "neutral" };
/** Milliseconds between changes while rows are being loaded. */
const PAUSE = 500;
/** Pixels per row at a root font size of 16 pixels. */
const ROW_HEIGHT = 38;

class List {
  constructor(place, context) {
    this.context = context;
    this.main = place.main;
    this.active = 0;
    this.frame = null;
    this.#read(place);
    this.#build();
    this.onChange = () => this.#schedule();
    this.onKey = (event) => this.#key(event);
    dataset.addEventListener("change", this.onChange);
    document.addEventListener("keydown", this.onKey);
    this.#select();
    if (dataset.lastEpisode !== undefined) this.#activateEpisode(dataset.lastEpisode);
  }

  close() {
    dataset.removeEventListener("change", this.onChange);
    document.removeEventListener("keydown", this.onKey);
    this.list.close();
    clearTimeout(this.frame);
  }

  update(place) {
    this.#read(place);
    this.#select();
    return true;
  }

  #read({ query }) {
    dataset.listRoute = query.size ? `/?${query}` : "/";
    this.filters = Object.fromEntries(FILTERS.filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
    const sort = query.get("sort") ?? "episode";
    this.sorting = { by: sort.replace(/^-/, ""), descending: sort.startsWith("-") };
    if (!COLUMNS.some(([name]) => name === this.sorting.by)) this.sorting = { by: "episode", descending: false };
  }

  #build() {
    const { state } = dataset;
    this.context.setHeader(state.name, html`<span class="muted dataset-env">${state.env}, seed ${state.seed}</span>`);
    const isOpen = localStorage.getItem(PLOTS_KEY) ?? (innerWidth >= 700 ? "open" : "closed");
    render(
      html`
        <div class="filters" role="search" aria-label="Filters"></div>
        <details class="plots" ?open=${isOpen === "open"}>
          <summary>Plots</summary>
          <div class="plot-grid"></div>
        </details>
        <div class="count-line toolbar"></div>
        <div class="grid panel" role="grid" aria-label="Episodes" aria-colcount=${COLUMNS.length + 1}>
          <div class="grid-head" role="rowgroup"></div>
          <div class="grid-body" role="rowgroup" tabindex="0" aria-label="Rows"></div>
        </div>
        <div class="grid-empty"></div>
      `,
      this.main,
    );
    const find = (selector) => this.main.querySelector(selector);
    this.parts = {
      filters: find(".filters"),
      count: find(".count-line"),
      grid: find(".grid"),
      head: find(".grid-head"),
      body: find(".grid-body"),
      empty: find(".grid-empty"),
      details: find(".plots"),
    };
    this.plots = new Plots(find(".plot-grid"), (changes) => this.#filter(changes));
    this.parts.details.addEventListener("toggle", () => {
      localStorage.setItem(PLOTS_KEY, this.parts.details.open ? "open" : "closed");
      this.#draw();
    });
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.list = new VirtualList(this.parts.body, {
      rowHeight: Math.round((ROW_HEIGHT * rem) / 16),
      renderRow: (position) => this.#row(position),
    });
  }

  /** Shows rows soon: the first ones at once, others together. */
  #schedule() {
    const wait = this.drawn && dataset.rows.isReading ? PAUSE : 0;
    this.frame ??= setTimeout(() => {
      this.frame = null;
      this.#select();
    }, wait);
  }

  #select() {
    const { rows } = dataset;
    this.found = select(rows, this.filters, this.sorting);
    dataset.order = this.found;
    this.active = Math.min(this.active, Math.max(this.found.length - 1, 0));
    this.#draw();
  }

  #draw() {
    const { rows, state } = dataset;
    this.drawn = rows.length > 0;
    this.#renderFilters();
    this.#renderHead();
    const isFiltered = Object.keys(this.filters).length > 0;
    const total = counted(rows.length, "episode");
    const shown = isFiltered ? `${count(this.found.length)} of ${total}` : total;
    const missing = state.requested - rows.length;
    render(
      html`
        <strong role="status">${shown}</strong>
        ${rows.isReading ? html`<span class="badge" data-kind="neutral">reading …</span>` : nothing}
        ${!rows.isReading && missing > 0
          ? html`<span class="badge" data-kind="warn">${count(missing)} of ${count(state.requested)} are not recorded yet</span>`
          : nothing}
        ${rows.problem ? html`<span class="badge wrapping" data-kind="bad">${rows.problem}</span>` : nothing}
        ${state.faults ? html`<span class="muted">${counted(state.faults, "sandbox failure")}, retried</span>` : nothing}
        <span class="spacer"></span>
        ${this.#compareBar()}
      `,
      this.parts.count,
    );
    this.parts.grid.hidden = this.found.length === 0;
    this.parts.grid.setAttribute("aria-rowcount", String(this.found.length + 1));
    render(this.found.length ? nothing : this.#emptyTemplate(isFiltered), this.parts.empty);
    const { body } = this.parts;
    const hasFocus = body !== document.activeElement && body.contains(document.activeElement);
    this.list.setCount(this.found.length);
    if (hasFocus) this.list.elementOf(this.active)?.querySelector("a").focus({ preventScroll: true });
    if (this.parts.details.open) this.plots.show(rows, this.found, this.filters);
  }

  #emptyTemplate(isFiltered) {
    if (dataset.rows.isReading) return html`<div class="empty"><p>Reading episodes …</p></div>`;
    if (isFiltered) {
      return html`<div class="empty">
        <h2>No episode matches</h2>
        <button class="button" @click=${() => this.#clear()}>Clear the filters</button>
      </div>`;
    }
    return html`<div class="empty">
      <h2>There are no episodes yet</h2>
      <p>They appear here as <code>coding-gym collect</code> writes them.</p>
    </div>`;
  }

  #compareBar() {
    const chosen = dataset.compared;
    if (!chosen.length) return html`<span class="muted hint">Mark two episodes to compare them.</span>`;
    if (chosen.length === 1) {
      return html`<span class="muted">Episode ${chosen[0]} is marked: mark another one.</span>
        <button class="button" @click=${() => this.#mark(chosen[0])}>Unmark</button>`;
    }
    return html`<a class="button primary" href="#/compare/${chosen[0]}/${chosen[1]}">Compare ${chosen[0]} and ${chosen[1]}</a>
      <button class="button" @click=${() => this.#mark()}>Unmark</button>`;
  }

  #renderFilters() {
    const actions = { filter: (changes) => this.#filter(changes), clear: () => this.#clear() };
    render(filtersTemplate(dataset.rows, this.filters, actions), this.parts.filters);
  }

  #renderHead() {
    const { by, descending } = this.sorting;
    render(
      html`<div class="row head" role="row">
        <span role="columnheader" class="cell mark"><span class="visually-hidden">Compare</span></span>
        ${COLUMNS.map(
          ([name, label]) => html`<span role="columnheader" class="cell ${name}" aria-sort=${by === name ? (descending ? "descending" : "ascending") : "none"}>
            <button class="sort" @click=${() => this.#sort(name)}>${label}<span aria-hidden="true">${by === name ? (descending ? " ↓" : " ↑") : ""}</span></button>
          </span>`,
        )}
      </div>`,
      this.parts.head,
    );
  }

  #row(position) {
    const item = dataset.rows.at(this.found[position]);
    const row = document.createElement("div");
    row.className = "row";
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", String(position + 2));
    const isMarked = dataset.compared.includes(item.episode);
    if (position === this.active) row.classList.add("active");
    const mark = document.createElement("input");
    mark.type = "checkbox";
    mark.checked = isMarked;
    mark.tabIndex = -1;
    mark.setAttribute("aria-label", `Compare episode ${item.episode}`);
    mark.addEventListener("change", () => this.#mark(item.episode));
    const link = document.createElement("a");
    link.href = `#/episode/${item.episode}`;
    link.textContent = String(item.episode);
    link.tabIndex = position === this.active ? 0 : -1;
    const isDamaged = item.ending === "damaged";
    const tests = item.tests ? `${item.passed} / ${item.tests}` : "–";
    const cells = [
      ["mark", mark],
      ["episode number", link],
      ["task", spelledOut(item.task) || "–"],
      ["result", badge(isDamaged ? "damaged" : item.result, isDamaged ? "warn" : RESULT_KINDS[item.result])],
      ["outcome", badge(spelledOut(outcomeLabel(item.outcome)), outcomeKind(item.outcome))],
      ["passed number", tests],
      ["steps number", count(item.steps)],
      ["reward number", isDamaged ? "–" : reward(item.reward)],
      ["seconds number", duration(item.seconds)],
    ];
    for (const [name, content] of cells) {
      const cell = document.createElement("span");
      cell.className = `cell ${name}`;
      cell.setAttribute("role", "gridcell");
      cell.append(content);
      if (name === "task") cell.title = spelledOut(item.task);
      row.append(cell);
    }
    row.addEventListener("click", (event) => {
      if (event.target.closest("a, input, .mark") || getSelection().toString()) return;
      this.context.go(`/episode/${item.episode}`);
    });
    return row;
  }

  #filter(changes) {
    const filters = { ...this.filters, ...changes };
    for (const [name, value] of Object.entries(filters)) if (!value) delete filters[name];
    this.active = 0;
    this.parts.body.scrollTop = 0;
    this.#navigate(filters, this.sorting);
  }

  #clear() {
    this.#navigate({}, this.sorting);
    this.main.querySelector(".search").focus();
  }

  #sort(name) {
    // Numbers are most interesting from the top.
    const first = ["reward", "steps", "seconds", "passed"].includes(name);
    const descending = this.sorting.by === name ? !this.sorting.descending : first;
    this.#navigate(this.filters, { by: name, descending });
  }

  #navigate(filters, { by, descending }) {
    const query = new URLSearchParams(filters);
    if (by !== "episode" || descending) query.set("sort", `${descending ? "-" : ""}${by}`);
    this.context.go(`/${query.size ? `?${query}` : ""}`, { replace: true });
  }

  #mark(episode) {
    const { compared } = dataset;
    if (episode === undefined) dataset.compared = [];
    else if (compared.includes(episode)) dataset.compared = compared.filter((other) => other !== episode);
    else dataset.compared = [...compared.slice(-1), episode];
    this.#draw();
  }

  #activateEpisode(episode) {
    const row = dataset.rows.rowOf(episode);
    const position = this.found.indexOf(row);
    if (position >= 0) this.#activate(position);
  }

  #activate(position, mustFocus = true) {
    if (!this.found.length) return;
    const before = this.list.elementOf(this.active);
    this.active = Math.min(this.found.length - 1, Math.max(0, position));
    this.list.scrollTo(this.active);
    before?.classList.remove("active");
    before?.querySelector("a").setAttribute("tabindex", "-1");
    const now = this.list.elementOf(this.active);
    now?.classList.add("active");
    const link = now?.querySelector("a");
    link?.setAttribute("tabindex", "0");
    if (mustFocus) link?.focus({ preventScroll: true });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const search = this.main.querySelector(".search");
    const isField = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (event.key === "/" && !isField) {
      event.preventDefault();
      search.focus();
      search.select();
      return;
    }
    if (event.key === "Escape") {
      if (event.target === search) {
        this.#filter({ text: "" });
        this.#activate(this.active);
      } else if (Object.keys(this.filters).length) this.#clear();
      return;
    }
    if (isField && event.target === search && ["ArrowDown", "Enter"].includes(event.key)) {
      event.preventDefault();
      this.#activate(this.active);
      return;
    }
    if (isField || event.target.closest(".plots, .sort")) return;
    const page = Math.max(1, Math.floor(this.parts.body.clientHeight / this.list.rowHeight) - 1);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      event.preventDefault();
      const isInList = this.parts.body.contains(document.activeElement) && document.activeElement.tagName === "A";
      const mustMove = isInList || !Number.isFinite(moves[event.key]);
      this.#activate(mustMove ? this.active + moves[event.key] : this.active);
    } else if (event.key === "Enter" && event.target === this.parts.body) {
      this.list.elementOf(this.active)?.querySelector("a").click();
    } else if ((event.key === "c" || event.key === " ") && this.parts.body.contains(event.target) && this.found.length) {
      if (event.target.matches("input")) return;
      event.preventDefault();
      this.#mark(dataset.rows.columns.episode[this.found[this.active]]);
      this.#activate(this.active);
    }
  }
}

function badge(text, kind) {
  const element = document.createElement("span");
  element.className = "badge";
  element.dataset.kind = kind;
  element.textContent = text;
  return element;
}

export async function open(place, context) {
  await dataset.open(context);
  return new List(place, context);
}
