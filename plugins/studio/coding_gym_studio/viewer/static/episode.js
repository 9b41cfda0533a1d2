// An episode: its timeline, the list of its steps, and what is to be seen of the chosen one.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { spelledOut } from "/static/common/text.js";
import { VirtualList } from "/static/common/virtual-list.js";
import { getJson } from "./api.js";
import { dataset } from "./dataset.js";
import { duration, reward, taskName } from "./format.js";
import { StepView, TABS } from "./step.js";
import { timeline, timesOf } from "./timeline.js";

const ROW_HEIGHT = 44;

class EpisodePage {
  constructor(place, context, episode) {
    this.context = context;
    this.main = place.main;
    this.episode = episode;
    this.tab = null;
    this.hovered = null;
    render(
      html`
        <div class="episode-head"></div>
        <div class="strip"></div>
        <div class="episode-body">
          <section class="steps panel" aria-label="Steps"><div class="step-list" role="listbox" tabindex="0" aria-label="Steps"></div></section>
          <section class="step panel" aria-label="Step"></section>
        </div>
      `,
      this.main,
    );
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.steps = this.main.querySelector(".step-list");
    this.list = new VirtualList(this.steps, {
      rowHeight: Math.round((ROW_HEIGHT * rem) / 16),
      renderRow: (position) => this.#row(position),
    });
    this.view = new StepView(this.main.querySelector(".step"), episode, (tab) => this.#go(this.step, tab));
    this.onKey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onKey);
    dataset.lastEpisode = episode.episode;
    this.update(place);
  }

  close() {
    document.removeEventListener("keydown", this.onKey);
    this.list.close();
    this.view.close();
  }

  update({ parts, query }) {
    const [episode, step] = parts;
    if (Number(episode) !== this.episode.episode) return false;
    const last = this.episode.steps.length - 1;
    this.step = Math.min(step === undefined ? Math.min(1, last) : Number(step), last);
    this.tab = TABS.includes(query.get("tab")) ? query.get("tab") : (this.tab ?? "code");
    this.#draw();
    return true;
  }

  #draw() {
    const { episode, step } = this;
    this.#drawHead();
    this.#drawStrip();
    this.list.setCount(episode.steps.length);
    this.list.scrollTo(step);
    this.steps.setAttribute("aria-activedescendant", `step-${step}`);
    this.view.show(episode.steps[step], this.tab);
  }

  #drawHead() {
    const { episode } = this;
    const last = episode.steps[episode.steps.length - 1];
    const total = episode.steps.reduce((sum, step) => sum + (step.reward ?? NaN), 0);
    const seconds = episode.started ? episode.steps.reduce((sum, step) => sum + (step.seconds ?? 0) + (step.policySeconds ?? 0), 0) : NaN;
    const row = dataset.rows.rowOf(episode.episode);
    const result = row < 0 ? "unknown" : dataset.rows.at(row).result;
    const ending = episode.steps.length < 2 ? "no actions" : last.terminated ? "terminated" : "truncated";
    const [previous, next] = this.#neighbors();
    this.context.setHeader(
      `Episode ${episode.episode}`,
      html`<a class="button quiet back" href="#${dataset.listRoute ?? "/"}">‹ ${dataset.state.name}</a>
        <span class="toolbar">
          <button class="button" ?disabled=${previous === null} aria-label="Previous episode" title="Previous episode ( [ )" @click=${() => this.#openEpisode(previous)}>↑</button>
          <button class="button" ?disabled=${next === null} aria-label="Next episode" title="Next episode ( ] )" @click=${() => this.#openEpisode(next)}>↓</button>
        </span>`,
    );
    const facts = [
      ["reward", reward(total)],
      ["steps", String(episode.steps.length - 1)],
      ["time", duration(seconds)],
      ["seed", episode.seed],
      ["started", episode.started ? new Date(episode.started).toLocaleString() : "–"],
    ];
    render(
      html`
        <span class="task-name">${taskName(episode.task) || "no task"}</span>
        ${result === "unknown" ? nothing : html`<span class="badge" data-kind=${result === "solved" ? "good" : "bad"}>${result}</span>`}
        <span class="badge" data-kind="neutral">${ending}</span>
        <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd class="number">${value}</dd></div>`)}</dl>
      `,
      this.main.querySelector(".episode-head"),
    );
  }

  #drawStrip() {
    const shown = this.hovered ?? this.episode.steps[this.step];
    const hover = (step) => {
      this.hovered = step;
      this.#drawStrip();
    };
    render(
      html`
        ${timeline(this.episode, this.step, (step, tab) => this.#go(step, tab), hover)}
        <p class="strip-caption muted number">
          ${shown.number ? `Step ${shown.number}` : "Reset"} · ${spelledOut(outcomeLabel(shown.outcome))} · ${timesOf(shown)}
        </p>
      `,
      this.main.querySelector(".strip"),
    );
  }

  #row(position) {
    const step = this.episode.steps[position];
    const row = document.createElement("div");
    row.className = "step-row";
    row.id = `step-${position}`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(position === this.step));
    row.dataset.kind = position ? outcomeKind(step.outcome) : "neutral";
    const tests = step.tests && step.graded ? `${step.passed} / ${step.tests} tests` : step.verdict ?? "";
    render(
      html`
        <span class="step-number number">${position}</span>
        <span class="step-text">
          <code class="step-preview">${position ? spelledOut(firstLine(step.preview)) : "reset"}</code>
          <span class="step-note muted number">
            ${position ? spelledOut(outcomeLabel(step.outcome)) : "observation"}${tests ? ` · ${tests}` : ""}${step.reward ? ` · reward ${reward(step.reward)}` : ""}
          </span>
        </span>
        <span class="muted number step-time">${step.seconds === undefined ? "" : duration(step.seconds)}</span>
      `,
      row,
    );
    row.addEventListener("click", () => this.#go(position));
    return row;
  }

  #go(step, tab = this.tab) {
    this.context.go(`/episode/${this.episode.episode}/step/${step}?tab=${tab}`, { replace: true });
  }

  /** Returns the episodes before and after this one in the order of the list. */
  #neighbors() {
    const { rows, order } = dataset;
    const row = rows.rowOf(this.episode.episode);
    const at = order ? order.indexOf(row) : -1;
    if (at < 0) return [row > 0 ? rows.columns.episode[row - 1] : null, row >= 0 && row + 1 < rows.length ? rows.columns.episode[row + 1] : null];
    const episodeAt = (position) => (position < 0 || position >= order.length ? null : rows.columns.episode[order[position]]);
    return [episodeAt(at - 1), episodeAt(at + 1)];
  }

  #openEpisode(episode) {
    if (episode !== null) this.context.go(`/episode/${episode}?tab=${this.tab}`, { replace: true });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const last = this.episode.steps.length - 1;
    const to = (step) => {
      event.preventDefault();
      this.#go(Math.min(last, Math.max(0, step)));
    };
    const isInTabs = event.target.getAttribute("role") === "tab";
    const isInText = event.target.matches(".output, .code");
    const [previous, next] = this.#neighbors();
    if (event.key === "j" || (event.key === "ArrowDown" && !isInText)) to(this.step + 1);
    else if (event.key === "k" || (event.key === "ArrowUp" && !isInText)) to(this.step - 1);
    else if (event.key === "ArrowRight" && !isInTabs && !isInText) to(this.step + 1);
    else if (event.key === "ArrowLeft" && !isInTabs && !isInText) to(this.step - 1);
    else if (event.key === "Home" && !isInText && !isInTabs) to(0);
    else if (event.key === "End" && !isInText && !isInTabs) to(last);
    else if (event.key === "[") this.#openEpisode(previous);
    else if (event.key === "]") this.#openEpisode(next);
    else if (/^[1-5]$/.test(event.key)) this.#go(this.step, TABS[Number(event.key) - 1]);
    else if (event.key === "Escape") this.context.go(dataset.listRoute ?? "/");
  }
}

function firstLine(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return lines[0] ?? "";
}

export async function open(place, context) {
  await dataset.open(context);
  const episode = await getJson(`/api/episodes/${place.parts[0]}`);
  return new EpisodePage(place, context, episode);
}

