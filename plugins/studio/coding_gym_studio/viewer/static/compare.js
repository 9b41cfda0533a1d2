// Two episodes side by side: steps in rows, with the differences of their code line by line.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { terminalNodes } from "/static/common/terminal.js";
import { spelledOut } from "/static/common/text.js";
import { getJson } from "./api.js";
import { dataset } from "./dataset.js";
import { diffLines } from "./diff.js";
import { count, counted, duration, reward, taskName } from "./format.js";
import { outputs } from "./step.js";
import { pictureElement, picturePath } from "./timeline.js";

const OUTPUT_CHARS = 4000;
const CODE_CHARS = 100_000;
/** Lines of code that a step shows until more is wanted. */
const MOST_LINES = 200;
/** Equal lines before the first difference that are shown in any case. */
const CONTEXT = 3;
/** Lines that are added per frame. */
const PART = 500;

class Comparison {
  constructor(place, context, episodes) {
    this.context = context;
    this.episodes = episodes;
    this.isOpen = true;
    this.active = 0;
    const [first, second] = episodes;
    context.setHeader(
      `Episodes ${first.episode} and ${second.episode}`,
      html`<a class="button quiet back" href="#${dataset.listRoute ?? "/"}">‹ ${dataset.state.name}</a>
        <a class="button" href="#/compare/${second.episode}/${first.episode}">Swap</a>`,
    );
    const length = Math.max(first.steps.length, second.steps.length);
    const numbers = Array.from({ length }, (_, number) => number);
    const same = taskName(first.task) === taskName(second.task);
    render(
      html`
        <div class="compare">
          ${episodes.map((episode) => this.#head(episode))}
          ${same ? nothing : html`<p class="compare-note muted">The episodes have different tasks.</p>`}
          ${numbers.map((number) => html`<section class="compare-step" tabindex="-1" data-step=${number} aria-label=${number ? `Step ${number}` : "Reset"}></section>`)}
        </div>
      `,
      place.main,
    );
    this.sections = [...place.main.querySelectorAll(".compare-step")];
    /** Sections that are near the visible part and not filled, which are filled one per frame. */
    this.waiting = new Set();
    this.isFilling = false;
    this.observer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (isIntersecting) this.waiting.add(target);
          else this.waiting.delete(target);
        }
        void this.#fillWaiting();
      },
      { rootMargin: "600px" },
    );
    for (const section of this.sections) this.observer.observe(section);
    this.onKey = (event) => this.#key(event);
    document.addEventListener("keydown", this.onKey);
  }

  close() {
    this.isOpen = false;
    this.observer.disconnect();
    document.removeEventListener("keydown", this.onKey);
  }

  #head(episode) {
    const row = dataset.rows.rowOf(episode.episode);
    const result = row < 0 ? "unknown" : dataset.rows.at(row).result;
    const total = episode.steps.reduce((sum, step) => sum + (step.reward ?? NaN), 0);
    const seconds = episode.steps.reduce((sum, step) => sum + (step.seconds ?? NaN) + (step.policySeconds ?? 0), 0);
    return html`
      <header class="compare-head panel">
        <h2><a href="#/episode/${episode.episode}">Episode ${episode.episode}</a></h2>
        <p class="toolbar">
          <span class="task-name">${taskName(episode.task) || "no task"}</span>
          ${result === "unknown" ? nothing : html`<span class="badge" data-kind=${result === "solved" ? "good" : "bad"}>${result}</span>`}
        </p>
        <p class="muted number">reward ${reward(total)} · ${counted(episode.steps.length - 1, "step")} · ${duration(seconds)}</p>
      </header>
    `;
  }

  async #fillWaiting() {
    if (this.isFilling) return;
    this.isFilling = true;
    while (this.isOpen && this.waiting.size) {
      const [section] = this.waiting;
      this.waiting.delete(section);
      this.observer.unobserve(section);
      await this.#fill(section).catch((error) => (section.textContent = error.message));
      await new Promise(requestAnimationFrame);
    }
    this.isFilling = false;
  }

  async #fill(section) {
    const number = Number(section.dataset.step);
    const steps = this.episodes.map((episode) => episode.steps[number] ?? null);
    const codes = await Promise.all(steps.map((step, at) => this.#text(this.episodes[at], step, "action", CODE_CHARS)));
    const printed = await Promise.all(
      steps.map(async (step, at) => {
        const names = step ? outputs(step).filter((name) => /^(std(out|err)|observation)$/.test(name)) : [];
        return Promise.all(names.map(async (name) => [name, await this.#text(this.episodes[at], step, name, OUTPUT_CHARS)]));
      }),
    );
    if (!this.isOpen) return;
    const pairs = diffLines(codes[0], codes[1]);
    const isEqual = pairs.every(({ first, second }) => first === second);
    render(
      html`
        <h3 class="compare-number">
          ${number ? `Step ${number}` : "Reset"}
          ${number && steps[0] && steps[1] ? html`<span class="badge" data-kind="neutral">${isEqual ? "same code" : "different code"}</span>` : nothing}
        </h3>
        ${steps.map((step, at) => this.#cell(step, at, number, printed[at]))}
      `,
      section,
    );
    if (number) this.#showCode(section, pairs);
    section.classList.add("is-filled");
  }

  #cell(step, at, number, printed) {
    if (!step) return html`<div class="compare-cell is-missing"><p class="muted">This episode has ended.</p></div>`;
    const episode = this.episodes[at];
    const picture = step.pictures.find((found) => !found.isBlack);
    return html`
      <div class="compare-cell panel">
        <p class="toolbar compare-cell-head">
          <a href="#/episode/${episode.episode}/step/${number}">${number ? `Step ${number}` : "Reset"}</a>
          <span class="badge" data-kind=${outcomeKind(step.outcome)}>${spelledOut(outcomeLabel(step.outcome))}</span>
          ${step.graded ? html`<span class="muted number">${step.passed} / ${step.tests} tests</span>` : nothing}
          ${step.reward ? html`<span class="muted number">reward ${reward(step.reward)}</span>` : nothing}
          <span class="spacer"></span>
          <span class="muted number">${duration(step.seconds)}</span>
        </p>
        ${number
          ? html`<div class="code diff" data-side=${at} tabindex="0" role="region" aria-label="Code of episode ${episode.episode}"></div>`
          : nothing}
        ${picture ? pictureElement(picturePath(episode.episode, number, picture.name), `Screen of episode ${episode.episode}`) : nothing}
        ${printed
          .filter(([, text]) => text)
          .map(([name, text]) => html`<div class="output ${name === "stderr" ? "is-error" : ""}" tabindex="0" role="region" aria-label="${name} of episode ${episode.episode}">${terminalNodes(text)}</div>`)}
        ${printed.some(([name]) => step.lengths[name] > OUTPUT_CHARS)
          ? html`<p class="muted">Only the beginning is shown: <a href="#/episode/${episode.episode}/step/${number}?tab=output">all output</a></p>`
          : nothing}
      </div>
    `;
  }

  /** Shows the code of a step from its first difference on, and all of it when it is wanted. */
  #showCode(section, pairs) {
    const places = [...section.querySelectorAll(".diff")];
    const different = pairs.findIndex(({ first, second }) => first !== second);
    const isLong = pairs.length > MOST_LINES;
    const start = isLong && different > MOST_LINES / 2 ? different - CONTEXT : 0;
    const stop = isLong ? Math.min(pairs.length, start + MOST_LINES) : pairs.length;
    for (const place of places) place.append(...lines(pairs.slice(start, stop), place.dataset.side));
    if (!isLong) return;
    const more = document.createElement("p");
    more.className = "toolbar compare-more";
    const note = document.createElement("span");
    note.className = "muted";
    note.textContent = `Lines ${count(start + 1)} to ${count(stop)} of ${count(pairs.length)} are shown.`;
    const button = document.createElement("button");
    button.className = "button";
    button.textContent = "Show all";
    button.addEventListener("click", () => {
      more.remove();
      void this.#showAllCode(places, pairs);
    });
    more.append(note, button);
    section.querySelector(".compare-number").after(more);
  }

  async #showAllCode(places, pairs) {
    for (const place of places) place.replaceChildren();
    for (let at = 0; at < pairs.length && this.isOpen; at += PART) {
      for (const place of places) place.append(...lines(pairs.slice(at, at + PART), place.dataset.side));
      await new Promise(requestAnimationFrame);
    }
  }

  async #text(episode, step, name, count) {
    if (!step || !step.lengths[name]) return "";
    return (await getJson(`/api/episodes/${episode.episode}/steps/${step.number}/text?name=${encodeURIComponent(name)}&count=${count}`)).text;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    if (event.key === "Escape") this.context.go(dataset.listRoute ?? "/");
    const step = { j: 1, k: -1 }[event.key];
    if (!step) return;
    this.active = Math.min(this.sections.length - 1, Math.max(0, this.active + step));
    this.sections[this.active].scrollIntoView({ block: "start" });
    this.sections[this.active].focus({ preventScroll: true });
  }
}

/** Returns the elements of the lines of a side: "0" or "1". */
function lines(pairs, side) {
  return pairs.map(({ first, second }) => {
    const line = side === "1" ? second : first;
    const element = document.createElement("div");
    const change = first === second ? "" : line === null ? "gap" : side === "1" ? "added" : "removed";
    element.className = `line ${change}`;
    if (change && line !== null) {
      const label = document.createElement("span");
      label.className = "visually-hidden";
      label.textContent = `${change}: `;
      element.append(label);
    }
    element.append(spelledOut(line ?? ""));
    return element;
  });
}

export async function open(place, context) {
  await dataset.open(context);
  const episodes = await Promise.all(place.parts.map((number) => getJson(`/api/episodes/${number}`)));
  return new Comparison(place, context, episodes);
}
