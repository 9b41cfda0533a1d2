// The episode up to the selected node: its steps with their code, output and pictures.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { ref } from "/static/common/vendor/lit-html/directives/ref.js";
import { repeat } from "/static/common/vendor/lit-html/directives/repeat.js";
import { highlightInto } from "/static/common/highlight.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { getJson, getPicture } from "../api.js";
import { shortNumber } from "./tree-model.js";

/** Characters of a text that are shown at first. */
const SHOWN = 6_000;
const CHUNK = 100_000;
const STEPS = 20;
/** Keys may walk faster than episodes load. */
const WAIT_MILLISECONDS = 120;

export class EpisodePanel {
  /**
   * @param {HTMLElement} element
   * @param {import("./tree-model.js").TreeModel} model
   */
  constructor(element, model) {
    this.element = element;
    this.model = model;
    element.replaceChildren();
    model.addEventListener("select", () => this.show(WAIT_MILLISECONDS));
  }

  /** Shows the selected node's episode. */
  async show(wait = 0) {
    this.abort?.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const id = this.model.selected;
    if (wait) await new Promise((resolve) => setTimeout(resolve, wait));
    if (signal.aborted) return;
    this.element.setAttribute("aria-busy", "true");
    try {
      const episode = await getJson(`/api/tree/nodes/${id}`, signal);
      this.episode = episode;
      this.error = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error.message;
    }
    this.#render();
    this.element.setAttribute("aria-busy", "false");
    this.#scrollToSelected();
  }

  async #showEarlier() {
    const { id, first } = this.episode;
    const count = Math.min(STEPS, first);
    try {
      const earlier = await getJson(`/api/tree/nodes/${id}?first=${first - count}&count=${count}`, this.abort.signal);
      if (this.episode.id !== id) return;
      this.episode = { ...this.episode, first: earlier.first, steps: [...earlier.steps, ...this.episode.steps] };
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error.message;
    }
    this.#render();
  }

  async #loadPicture(image, id) {
    if (!image || image.dataset.node === String(id)) return;
    image.dataset.node = id;
    try {
      image.src = await getPicture(`/api/tree/nodes/${id}/picture`);
    } catch (error) {
      image.alt = `The picture did not load: ${error.message}`;
    }
  }

  /** Scrolls to the selected step, if the panel scrolls by itself. */
  #scrollToSelected() {
    const panel = this.element.parentElement;
    const selected = this.element.querySelector(".step.selected");
    if (!selected || getComputedStyle(panel).overflowY === "visible") return;
    panel.scrollTop += selected.getBoundingClientRect().top - panel.getBoundingClientRect().top - 56;
  }

  #render() {
    render(this.error ? failure(this.error, () => this.show()) : this.#template(), this.element);
  }

  #template() {
    const { episode } = this;
    const selected = episode.steps.at(-1);
    return html`
      <div class="panel-head">
        <h2 id="episode-title">${selected.depth ? `Episode up to node ${selected.id}` : "Root"}</h2>
        <p class="muted number">${selected.depth} ${selected.depth === 1 ? "step" : "steps"}</p>
      </div>
      ${episode.first
        ? html`<p class="earlier">
            <button class="button" type="button" @click=${() => this.#showEarlier()}>
              Show ${Math.min(STEPS, episode.first)} of ${episode.first} earlier
            </button>
          </p>`
        : nothing}
      <ol class="steps">
        ${repeat(
          episode.steps,
          (step) => `${episode.id}/${step.id}`,
          (step) => this.#step(step, step === selected),
        )}
      </ol>
    `;
  }

  #step(step, isSelected) {
    const { language } = this.episode;
    return html`
      <li class="step ${isSelected ? "selected" : ""}" data-node=${step.id}>
        <header>
          ${isSelected
            ? html`<h3>${stepName(step)}</h3>`
            : html`<h3>
                <button class="link" type="button" @click=${() => this.model.select(step.id)}>${stepName(step)}</button>
              </h3>`}
          ${outcomeBadge(step)}
          ${step.reward && !isSelected ? html`<span class="number muted">reward ${shortNumber(step.reward)}</span>` : nothing}
          ${step.visits && !isSelected ? html`<span class="number muted">value ${shortNumber(step.mean)}, ${step.visits}×</span>` : nothing}
        </header>
        ${isSelected ? facts(step) : nothing} ${step.action === null ? nothing : text(step.action, { name: "Code", className: "code", language })}
        ${output(step.stdout, step.stdout_chars, "Output")}
        ${output(step.stderr, step.stderr_chars, "Standard error")}
        ${output(step.observation, null, "Observation")}
        ${step.has_picture
          ? html`<img class="screen" alt="Screen after ${stepName(step)}" ${ref((image) => this.#loadPicture(image, step.id))} />`
          : nothing}
      </li>
    `;
  }
}

function stepName(step) {
  return step.depth ? `Step ${step.depth}` : "Root";
}

function outcomeBadge(step) {
  const ending = step.terminated ? "terminated" : step.truncated ? "truncated" : "";
  const exit = step.exit_code ? `exit code ${step.exit_code}` : "";
  return html`
    ${step.outcome ? badge(outcomeKind(step.outcome), outcomeLabel(step.outcome)) : nothing}
    ${step.solved === null ? nothing : badge(step.solved ? "good" : "neutral", step.solved ? "solved" : "not solved")}
    ${[exit, ending].filter(Boolean).map((word) => badge("neutral", word))}
  `;
}

function badge(kind, word) {
  return html`<span class="badge" data-kind=${kind}>${word}</span>`;
}

function facts(node) {
  const rows = [
    ["Value", node.visits ? shortNumber(node.mean) : "–"],
    ["Visits", node.visits],
    ["Score", shortNumber(node.score)],
    ["Reward", node.reward === null ? "not finite" : shortNumber(node.reward)],
    ["Total", node.total_reward === null ? "not finite" : shortNumber(node.total_reward)],
    ["Prior", shortNumber(node.prior)],
    ["Untried", node.untried ?? "–"],
  ];
  return html`<dl class="facts">
    ${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd class="number">${value}</dd></div>`)}
  </dl>`;
}

function output(content, wholeLength, name) {
  if (!content) return nothing;
  const note = wholeLength ? `Saved without its middle: it had ${wholeLength.toLocaleString("en")} characters.` : "";
  return html`
    <p class="caption">${name}</p>
    ${text(content, { name, className: name === "Standard error" ? "output error" : "output" })}
    ${note ? html`<p class="caption">${note}</p>` : nothing}
  `;
}

/** Returns a text as an element, and a button for the rest of it if it is long. */
function text(content, { name, className, language }) {
  const isLong = content.length > SHOWN;
  const fill = (element) => {
    if (!element || element.dataset.filled) return;
    element.dataset.filled = "true";
    if (language && !isLong) highlightInto(element, content, language);
    else element.textContent = isLong ? content.slice(0, SHOWN) : content;
  };
  return html`
    <pre class=${className} aria-label=${name} ${ref(fill)}></pre>
    ${isLong
      ? html`<button class="button all" type="button" @click=${(event) => showAll(event.target, content)}>
          Show all ${content.length.toLocaleString("en")} characters
        </button>`
      : nothing}
  `;
}

/** Appends the rest of a text in chunks, so that the page stays responsive. */
function showAll(button, content) {
  const element = button.previousElementSibling;
  let end = SHOWN;
  button.hidden = true;
  const append = () => {
    element.append(content.slice(end, end + CHUNK));
    end += CHUNK;
    if (end < content.length && element.isConnected) requestAnimationFrame(append);
  };
  append();
}

function failure(message, onRetry) {
  return html`<div class="empty">
    <h2 id="episode-title">This episode did not load</h2>
    <p>${message}</p>
    <button class="button" type="button" @click=${onRetry}>Try again</button>
  </div>`;
}
