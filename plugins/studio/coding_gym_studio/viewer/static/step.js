// What is to be seen of a step: code, output, screen, verdict, and the recorded data.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { highlightInto } from "/static/common/highlight.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { RunResults } from "/static/common/results.js";
import { terminalNodes } from "/static/common/terminal.js";
import { spelledOut } from "/static/common/text.js";
import { getJson } from "./api.js";
import { dataset } from "./dataset.js";
import { characters, counted, duration, reward } from "./format.js";
import { LongText } from "./text.js";
import { pictureElement, picturePath, timesOf } from "./timeline.js";

export const TABS = ["code", "output", "screen", "verdict", "raw"];

const LONGEST_CODE = 65_536;
const LONGEST_RESULT = 65_536;
const NOT_OUTPUT = new Set(["action", "raw"]);

/** The panel of one step, with a tab for each kind of data. */
export class StepView {
  /**
   * @param {HTMLElement} place
   * @param {object} episode
   * @param {(tab: string) => void} onTab Called when another tab is chosen.
   */
  constructor(place, episode, onTab) {
    this.place = place;
    this.episode = episode;
    this.onTab = onTab;
    this.texts = [];
    this.turn = 0;
    this.isBefore = false;
  }

  close() {
    this.turn++;
    for (const text of this.texts) text.close();
    this.texts = [];
  }

  show(step, tab) {
    this.close();
    this.step = step;
    const labels = {
      code: "Code",
      output: `Output${outputLength(step) ? ` · ${short(outputLength(step))}` : ""}`,
      screen: "Screen",
      verdict: step.graded ? `Verdict · ${step.passed}/${step.tests}` : "Verdict",
      raw: "Raw",
    };
    const isEmpty = {
      code: false,
      output: !outputLength(step) && !step.results,
      screen: !step.pictures.length,
      verdict: !step.graded && !step.verdict,
      raw: false,
    };
    render(
      html`
        <div class="step-head toolbar">
          <h2>${step.number ? `Step ${step.number}` : "Reset"}</h2>
          <span class="badge" data-kind=${outcomeKind(step.outcome)}>${spelledOut(outcomeLabel(step.outcome))}</span>
          ${step.exitCode ? html`<span class="badge" data-kind="bad">exit code ${step.exitCode}</span>` : nothing}
          ${step.terminated ? html`<span class="badge" data-kind="neutral">terminated</span>` : nothing}
          ${step.truncated ? html`<span class="badge" data-kind="neutral">truncated</span>` : nothing}
          <span class="spacer"></span>
          <span class="muted number">${step.number ? `reward ${reward(step.reward)} · ` : ""}${timesOf(step)}</span>
        </div>
        <div class="tabs" role="tablist" aria-label="Data of the step" @keydown=${(event) => this.#key(event, tab)}>
          ${TABS.map(
            (name) => html`<button
              role="tab"
              id="tab-${name}"
              aria-selected=${name === tab ? "true" : "false"}
              aria-controls="tab-panel"
              class=${isEmpty[name] ? "is-empty" : ""}
              tabindex=${name === tab ? "0" : "-1"}
              @click=${() => this.onTab(name)}
            >
              ${labels[name]}
            </button>`,
          )}
        </div>
      `,
      this.place,
    );
    const panel = document.createElement("div");
    panel.className = "tab-panel";
    panel.dataset.tab = tab;
    panel.id = "tab-panel";
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${tab}`);
    this.place.querySelector("#tab-panel")?.remove();
    this.place.append(panel);
    const fill = { code: this.#code, output: this.#output, screen: this.#screen, verdict: this.#verdict, raw: this.#raw }[tab];
    void this.#guarded(panel, fill);
  }

  async #guarded(panel, fill) {
    try {
      await fill.call(this, panel, this.turn);
    } catch (error) {
      if (error.name !== "AbortError") panel.replaceChildren(note(error.message));
    }
  }

  #path(rest) {
    return `/api/episodes/${this.episode.episode}/steps/${this.step.number}/${rest}`;
  }

  #text(name, label, kind) {
    const text = new LongText(this.#path(`text?name=${encodeURIComponent(name)}`), { label, kind });
    this.texts.push(text);
    return text.element;
  }

  async #code(panel, turn) {
    const { step } = this;
    if (!("action" in step.lengths)) {
      panel.append(note(step.number ? "This step has no action." : "The episode begins: there is no action yet."));
      for (const name of outputs(step).filter((found) => !/^std(out|err)$/.test(found))) {
        panel.append(heading(name), this.#text(name, name));
      }
      return;
    }
    if (step.lengths.action > LONGEST_CODE) {
      panel.append(this.#text("action", "Code"));
      return;
    }
    const { text } = await getJson(this.#path("text?name=action"));
    if (turn !== this.turn) return;
    const code = document.createElement("pre");
    code.className = "code";
    code.tabIndex = 0;
    code.setAttribute("role", "region");
    code.setAttribute("aria-label", "Code");
    highlightInto(code, spelledOut(text), step.isCode ? dataset.state.language : "json");
    panel.append(code);
  }

  async #output(panel, turn) {
    const { step } = this;
    const shown = outputs(step).filter((name) => step.lengths[name]);
    if (!shown.length && !step.results) panel.append(note("The step printed nothing."));
    for (const name of shown) {
      const title = heading(`${name} · ${characters(step.lengths[name])}`);
      if (/^(std(out|err)|observation)$/.test(name) || step.number === 0) {
        panel.append(title, this.#text(name, name, name === "stderr" ? "is-error" : ""));
        continue;
      }
      // Texts such as prompts, which each observation repeats.
      const folded = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = title.textContent;
      folded.append(summary);
      folded.addEventListener("toggle", () => folded.childElementCount === 1 && folded.append(this.#text(name, name)));
      panel.append(folded);
    }
    if (!step.results) return;
    const { results, omitted } = await getJson(this.#path("results"));
    if (turn !== this.turn) return;
    const place = new RunResults(labelled);
    place.add(results);
    panel.append(heading(counted(step.results, "rich result")), place.element);
    if (omitted) panel.append(note(`${counted(omitted, "result")} more: see Raw.`));
  }

  #screen(panel) {
    const { step, episode } = this;
    if (!step.pictures.length) {
      panel.append(note("The step has no picture: the environment has no screen."));
      return;
    }
    const before = step.number > 0 && episode.steps[step.number - 1].pictures.length ? episode.steps[step.number - 1] : null;
    const shown = this.isBefore && before ? before : step;
    if (before) {
      const choose = (isBefore) => {
        this.isBefore = isBefore;
        this.show(step, "screen");
      };
      const bar = document.createElement("div");
      bar.className = "toolbar before-after";
      render(
        html`<button class="button" aria-pressed=${shown === before ? "true" : "false"} @click=${() => choose(true)}>Before</button>
          <button class="button" aria-pressed=${shown === step ? "true" : "false"} @click=${() => choose(false)}>After</button>`,
        bar,
      );
      panel.append(bar);
    }
    for (const picture of shown.pictures) {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      caption.className = "muted";
      caption.textContent = `${picture.name}, ${picture.width} × ${picture.height}`;
      if (picture.isBlack) {
        figure.append(note("Nothing was on the screen: it is black."));
      } else {
        const image = pictureElement(picturePath(episode.episode, shown.number, picture.name), `Screen after step ${shown.number}`);
        image.width = picture.width;
        image.height = picture.height;
        figure.append(image);
      }
      figure.append(caption);
      panel.append(figure);
    }
  }

  async #verdict(panel, turn) {
    const { step } = this;
    if (!step.graded && !step.verdict) {
      panel.append(note(step.number ? "The step was not graded: it is not a submission." : "The episode begins: there is nothing to grade."));
      return;
    }
    const verdict = await getJson(this.#path("verdict"));
    if (turn !== this.turn) return;
    if (!verdict) {
      panel.append(note(`${step.passed} of ${counted(step.tests, "test")} passed. The results of single tests are not recorded in this dataset.`));
      return;
    }
    const cases = verdict.cases ?? [];
    const passed = cases.filter((test) => test.outcome === "passed").length;
    const folded = (name) =>
      verdict[name]
        ? html`<details><summary>${name} of the submission</summary><div class="output" tabindex="0" role="region" aria-label=${name}>${terminalNodes(verdict[name])}</div></details>`
        : nothing;
    const place = document.createElement("div");
    render(
      html`
        <p class="toolbar verdict-head">
          <span class="badge" data-kind=${outcomeKind(verdict.outcome)}>${verdict.outcome}</span>
          <strong>${passed} of ${counted(cases.length, "test")} passed</strong>
          <span class="muted number">${duration(verdict.seconds)}, CPU ${duration(verdict.cpu_seconds)}, ${verdict.mode}${verdict.is_weak ? ", weak" : ""}</span>
        </p>
        ${verdict.message ? html`<div class="output is-error" tabindex="0" role="region" aria-label="Message">${terminalNodes(verdict.message)}</div>` : nothing}
        <div class="table-scroll" tabindex="0" role="region" aria-label="Tests">
          <table class="data tests">
            <thead><tr><th scope="col">Test</th><th scope="col">Outcome</th><th scope="col">Time</th><th scope="col">Message</th></tr></thead>
            <tbody>
              ${cases.map(
                (test) => html`<tr>
                  <td>${spelledOut(test.name)}</td>
                  <td><span class="badge" data-kind=${outcomeKind(test.outcome)}>${test.outcome}</span></td>
                  <td class="number">${duration(test.seconds ?? 0)}</td>
                  <td class="message">${terminalNodes(test.message ?? "")}</td>
                </tr>`,
              )}
            </tbody>
          </table>
        </div>
        ${folded("stdout")} ${folded("stderr")}
      `,
      place,
    );
    panel.append(place);
  }

  #raw(panel) {
    panel.append(this.#text("raw", "Recorded data"));
  }

  #key(event, tab) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = (TABS.indexOf(tab) + step + TABS.length) % TABS.length;
    this.onTab(TABS[at]);
    this.place.querySelector(`#tab-${TABS[at]}`).focus();
  }
}

/** Returns the names of the texts of an observation, the output first. */
export function outputs(step) {
  const names = Object.keys(step.lengths).filter((name) => !NOT_OUTPUT.has(name));
  return names.sort((a, b) => rank(a) - rank(b));
}

function rank(name) {
  return ["stdout", "stderr"].indexOf(name) + 1 || 3;
}

function outputLength(step) {
  return (step.lengths.stdout ?? 0) + (step.lengths.stderr ?? 0) + (step.lengths.observation ?? 0);
}

function short(length) {
  return length < 1000 ? String(length) : length < 999_500 ? `${Math.round(length / 1000)} k` : `${(length / 1e6).toFixed(1)} M`;
}

function note(text) {
  const element = document.createElement("p");
  element.className = "note muted";
  element.textContent = spelledOut(text);
  return element;
}

/** Returns the element of a text of a rich result. */
function labelled(label, text) {
  const element = document.createElement("div");
  element.className = "output";
  element.tabIndex = 0;
  element.setAttribute("role", "region");
  element.setAttribute("aria-label", label);
  element.append(...terminalNodes(text.slice(0, LONGEST_RESULT)));
  if (text.length > LONGEST_RESULT) element.append(note(`Only the beginning of ${characters(text.length)} is shown: see Raw.`));
  return element;
}

function heading(text) {
  const element = document.createElement("h3");
  element.textContent = spelledOut(text);
  return element;
}
