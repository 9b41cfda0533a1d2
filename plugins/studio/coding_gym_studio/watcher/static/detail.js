// Details of one session: its last steps, and its screen.

import { html, nothing, render } from "../common/vendor/lit-html/lit-html.js";
import { guard } from "../common/vendor/lit-html/directives/guard.js";
import { repeat } from "../common/vendor/lit-html/directives/repeat.js";
import { highlightInto } from "../common/highlight.js";
import { outcomeKind } from "../common/outcome.js";
import { plainText } from "../common/terminal.js";
import { duration, reward } from "./text.js";
import { request } from "./stream.js";

const REFRESH_MS = 700;
const SCREEN_WIDTH = 1200;
const CLAMPED = 1200;

export class Detail {
  /**
   * @param {HTMLElement} root
   * @param {(session: object) => object} context Returns the name, age and isFrozen of a session.
   * @param {() => void} onClose
   */
  constructor(root, context, onClose) {
    this.root = root;
    this.context = context;
    this.onClose = onClose;
    this.session = null;
    this.steps = [];
    this.problem = null;
    this.isLoaded = false;
    this.screen = null;
    this.picture = 0;
    this.loadedVersion = null;
    this.loadedAt = 0;
    this.isLoading = false;
    this.unfolded = new Set();
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      onClose();
    });
  }

  get isOpen() {
    return this.session !== null;
  }

  open(session) {
    const isOther = this.session?.key !== session.key;
    this.session = session;
    this.root.hidden = false;
    if (isOther) {
      this.steps = [];
      this.problem = null;
      this.isLoaded = false;
      this.loadedVersion = null;
      this.unfolded.clear();
      this.#setScreen(null, 0);
      this.root.scrollTop = 0;
    }
    this.loadedAt = 0;
    this.update(session);
  }

  close() {
    this.session = null;
    this.root.hidden = true;
    this.#setScreen(null, 0);
    render(nothing, this.root);
  }

  /** Shows a new state of the session; null if it is gone. */
  update(session) {
    if (!this.isOpen) return;
    this.session = session ?? { ...this.session, state: "closed" };
    this.#render();
    if (session && this.loadedVersion !== session && performance.now() - this.loadedAt > REFRESH_MS) this.#load(session);
  }

  async #load(session) {
    if (this.isLoading) return;
    this.isLoading = true;
    this.loadedAt = performance.now();
    const path = `api/processes/${session.process}/sessions/${session.id}`;
    const isCurrent = () => this.session?.key === session.key;
    try {
      const response = await request(`${path}/steps`);
      if (!isCurrent()) return;
      if (response.ok) {
        const steps = await response.json();
        if (!isCurrent()) return;
        this.steps = steps.reverse();
        this.problem = null;
      } else {
        this.problem = this.isLoaded
          ? "The trainer has ended: this is what was loaded last."
          : "The trainer has ended before this session was opened: its steps are gone. The tile shows the last one.";
      }
      this.isLoaded = true;
      this.loadedVersion = session;
      if (session.has_screen && (session.picture !== this.picture || !session.picture)) await this.#loadScreen(session, path, isCurrent);
    } catch {
      // Disconnected, which the page says already; the next update tries again.
    } finally {
      this.isLoading = false;
      this.#render();
    }
  }

  async #loadScreen(session, path, isCurrent) {
    if (!session.picture) {
      this.#setScreen(null, 0);
      return;
    }
    const response = await request(`${path}/screen?width=${SCREEN_WIDTH}`);
    if (response.status === 200 && isCurrent()) this.#setScreen(URL.createObjectURL(await response.blob()), session.picture);
  }

  #setScreen(address, picture) {
    const old = this.screen;
    this.screen = address;
    this.picture = picture;
    // Not before the new one is shown.
    if (old) setTimeout(() => URL.revokeObjectURL(old), 1000);
  }

  #render() {
    const { session } = this;
    if (!session) return;
    const { name, age, isFrozen, process } = this.context(session);
    render(
      html`<div class="detail-head">
          <h2 id="detail-title" class="number">${name}</h2>
          <span class="badge">${session.state}${session.state === "closed" ? "" : ` ${duration(age)}`}</span>
          ${session.outcome ? html`<span class="badge" data-kind=${outcomeKind(session.outcome)}>${session.outcome}</span>` : nothing}
          <span class="spacer"></span>
          <button class="button quiet" @click=${this.onClose} aria-label="Close the details">✕</button>
        </div>
        <dl class="facts number">
          <div><dt>environment</dt><dd>${session.kind}</dd></div>
          ${session.label ? html`<div><dt>task</dt><dd>${session.label}</dd></div>` : nothing}
          <div><dt>process</dt><dd>${process?.pid ?? "–"}${isFrozen ? " (ended)" : ""}</dd></div>
          <div><dt>episode</dt><dd>${session.episodes}</dd></div>
          <div><dt>step</dt><dd>${session.steps}</dd></div>
          <div><dt>return</dt><dd>${reward(session.episode_return) || "0"}</dd></div>
          ${session.tests ? html`<div><dt>tests passed</dt><dd>${session.tests[0]} of ${session.tests[1]}</dd></div>` : nothing}
        </dl>
        ${session.has_screen ? this.#screenPart() : nothing}
        ${session.state === "running" ? html`<section class="step"><h3>running now</h3>${code(session.action, session.language)}</section>` : nothing}
        ${this.problem ? html`<p class="notice">${this.problem}</p>` : nothing}
        ${this.isLoaded ? nothing : html`<p class="muted">Loading …</p>`}
        ${this.isLoaded && !this.steps.length && !this.problem ? html`<p class="muted">There is no step yet.</p>` : nothing}
        ${repeat(this.steps, (step) => `${step.episode}-${step.number}`, (step) => this.#step(step))}`,
      this.root,
    );
  }

  #screenPart() {
    return html`<figure class="screen">
      ${this.screen ? html`<img src=${this.screen} alt="The screen after the last step">` : html`<div class="screen-black">${this.session.picture ? "Loading …" : "The screen is black: no window is open."}</div>`}
      <figcaption class="muted">after the last step or reset</figcaption>
    </figure>`;
  }

  #step(step) {
    const key = `${step.episode}-${step.number}`;
    return html`<section class="step" aria-label="Step ${step.number} of episode ${step.episode}">
      <header>
        <h3 class="number">step ${step.number}<span class="muted"> · episode ${step.episode}</span></h3>
        <span class="badge" data-kind=${outcomeKind(step.outcome)}>${plainText(step.outcome)}</span>
        ${step.exit_code ? html`<span class="badge">exit ${step.exit_code}</span>` : nothing}
        ${step.tests ? html`<span class="badge" data-kind=${step.tests[0] === step.tests[1] ? "good" : "bad"}>${step.tests[0]}/${step.tests[1]} tests</span>` : nothing}
        <span class="spacer"></span>
        <span class="muted number">${reward(step.reward)} ${duration(step.seconds)}</span>
      </header>
      ${code(step.action, this.session.language)}
      ${this.#output(`${key}-out`, step.stdout, "output")}
      ${this.#output(`${key}-err`, step.stderr, "error output")}
    </section>`;
  }

  #output(key, text, label) {
    if (!text) return nothing;
    const shown = plainText(text);
    const isClamped = shown.length > CLAMPED && !this.unfolded.has(key);
    const unfold = () => {
      this.unfolded.add(key);
      this.#render();
    };
    return html`<pre class="output ${label === "output" ? "" : "stderr"}" tabindex="0" role="group" aria-label=${label}>${isClamped ? `${shown.slice(0, CLAMPED)} …` : shown}</pre>
      ${isClamped ? html`<button class="button quiet" @click=${unfold}>Show all ${shown.length.toLocaleString("en")} characters</button>` : nothing}`;
  }
}

/** Highlighted code. The element is kept while the code is the same. */
function code(text, language) {
  return html`<pre class="code" tabindex="0" role="group" aria-label="action">${guard([text, language], () => highlighted(text, language))}</pre>`;
}

function highlighted(text, language) {
  const element = document.createElement("code");
  highlightInto(element, plainText(text), language);
  return element;
}
