// Two episodes side by side: steps in rows, with the differences of their code line by line.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { ansiNodes } from "./ansi.js";
import { getJson } from "./api.js";
import { dataset } from "./dataset.js";
import { diffLines } from "./diff.js";
import { counted, duration, reward, spelledOut } from "./format.js";
import { outputs } from "./step.js";
import { pictureElement, picturePath } from "./timeline.js";

const OUTPUT_CHARS = 4000;
const CODE_CHARS = 100_000;

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
    const count = Math.max(first.steps.length, second.steps.length);
    const numbers = Array.from({ length: count }, (_, number) => number);
    const same = first.task === second.task;
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
    this.observer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          this.observer.unobserve(target);
          void this.#fill(target).catch((error) => (target.textContent = error.message));
        }
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
          <span class="task-name">${episode.task ?? "no task"}</span>
          ${result === "unknown" ? nothing : html`<span class="badge" data-kind=${result === "solved" ? "good" : "bad"}>${result}</span>`}
        </p>
        <p class="muted number">reward ${reward(total)} · ${counted(episode.steps.length - 1, "step")} · ${duration(seconds)}</p>
      </header>
    `;
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
        ${steps.map((step, at) => this.#cell(step, at, number, pairs, printed[at], isEqual))}
      `,
      section,
    );
    section.classList.add("is-filled");
  }

  #cell(step, at, number, pairs, printed, isEqual) {
    if (!step) return html`<div class="compare-cell is-missing"><p class="muted">This episode has ended.</p></div>`;
    const episode = this.episodes[at];
    const side = at ? "second" : "first";
    const picture = step.pictures.find((found) => !found.isBlack);
    return html`
      <div class="compare-cell panel">
        <p class="toolbar compare-cell-head">
          <a href="#/episode/${episode.episode}/step/${number}">${number ? `Step ${number}` : "Reset"}</a>
          <span class="badge" data-kind=${outcomeKind(step.outcome)}>${outcomeLabel(step.outcome)}</span>
          ${step.graded ? html`<span class="muted number">${step.passed} / ${step.tests} tests</span>` : nothing}
          ${step.reward ? html`<span class="muted number">reward ${reward(step.reward)}</span>` : nothing}
          <span class="spacer"></span>
          <span class="muted number">${duration(step.seconds)}</span>
        </p>
        ${number
          ? html`<div class="code diff" tabindex="0" role="region" aria-label="Code of episode ${episode.episode}">
              ${pairs.map((pair) => {
                const line = pair[side];
                const change = isEqual || pair.first === pair.second ? "" : line === null ? "gap" : at ? "added" : "removed";
                return html`<div class="line ${change}">${change && line !== null ? html`<span class="visually-hidden">${change}: </span>` : nothing}${line === null ? "" : spelledOut(line)}</div>`;
              })}
            </div>`
          : nothing}
        ${picture ? pictureElement(picturePath(episode.episode, number, picture.name), `Screen of episode ${episode.episode}`) : nothing}
        ${printed
          .filter(([, text]) => text)
          .map(([name, text]) => html`<div class="output ${name === "stderr" ? "is-error" : ""}" tabindex="0" role="region" aria-label="${name} of episode ${episode.episode}">${ansiNodes(text)}</div>`)}
        ${printed.some(([name]) => step.lengths[name] > OUTPUT_CHARS)
          ? html`<p class="muted">Only the beginning is shown: <a href="#/episode/${episode.episode}/step/${number}?tab=output">all output</a></p>`
          : nothing}
      </div>
    `;
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

export async function open(place, context) {
  await dataset.open(context);
  const episodes = await Promise.all(place.parts.map((number) => getJson(`/api/episodes/${number}`)));
  return new Comparison(place, context, episodes);
}
