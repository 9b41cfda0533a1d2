// The timeline of an episode: a segment per step, as wide as the step was long, with pictures above.

import { html, nothing } from "/static/common/vendor/lit-html/lit-html.js";
import { ref } from "/static/common/vendor/lit-html/directives/ref.js";
import { outcomeKind, outcomeLabel } from "/static/common/outcome.js";
import { spelledOut } from "/static/common/text.js";
import { getPicture } from "./api.js";
import { duration } from "./format.js";

const MOST_PICTURES = 24;
/** Smallest share of a segment, so that short steps can be hit: of 20 steps, of more of them less. */
const SMALLEST = 0.02;
/** Share of the reset, which may take longer than all steps: it starts the sandbox. */
const RESET = 0.02;

/** Returns the address of a picture of a step. */
export function picturePath(episode, step, name) {
  return `/api/episodes/${episode}/steps/${step}/picture?name=${encodeURIComponent(name)}`;
}

/** Returns an image element whose picture is loaded when it becomes visible. */
export function pictureElement(path, alternative) {
  const image = document.createElement("img");
  image.alt = alternative;
  image.decoding = "async";
  const observer = new IntersectionObserver(async (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    try {
      image.src = await getPicture(path);
    } catch {
      image.alt = `${alternative} (cannot be loaded)`;
      image.classList.add("missing");
    }
  });
  observer.observe(image);
  return image;
}

/** Returns what a step took: the policy's time and the environment's. */
export function timesOf(step) {
  if (step.seconds === undefined) return "time not recorded";
  const policy = step.policySeconds >= 0.0005 ? `, policy ${duration(step.policySeconds)}` : "";
  return `${duration(step.seconds)}${policy}`;
}

/** Returns the template of a timeline. */
export function timeline(episode, chosen, onChoose, onHover) {
  const { steps } = episode;
  const total = steps.slice(1).reduce((sum, step) => sum + lengthOf(step), 0) || 1;
  const smallest = Math.min(SMALLEST, 0.4 / steps.length);
  const shares = steps.map((step) => (step.number ? Math.max(lengthOf(step) / total, smallest) : RESET));
  const sum = shares.reduce((a, b) => a + b, 0);
  const pictured = steps.filter((step) => step.pictures.some((picture) => !picture.isBlack));
  const every = Math.ceil(pictured.length / MOST_PICTURES);
  const thumbnails = pictured.filter((step, at) => at % every === 0 || step.number === chosen);
  const grow = (share) => (element) => element && (element.style.flexGrow = String((share / sum) * 1000));
  const policy = (step) => (element) => {
    if (element) element.style.width = `${(100 * (step.policySeconds ?? 0)) / (lengthOf(step) || 1)}%`;
  };
  return html`
    <div class="timeline panel" role="group" aria-label="Timeline">
      ${thumbnails.length
        ? html`<div class="film">
            ${thumbnails.map(
              (step) => html`<button
                class="frame"
                tabindex="-1"
                aria-label="Screen after step ${step.number}"
                aria-current=${step.number === chosen ? "step" : "false"}
                @click=${() => onChoose(step.number, "screen")}
                @mouseenter=${() => onHover(step)}
                @mouseleave=${() => onHover(null)}
              >
                ${thumbnail(episode, step)}<span class="frame-number number">${step.number}</span>
              </button>`,
            )}
          </div>`
        : nothing}
      <div class="segments">
        ${steps.map(
          (step, at) => html`<button
            class="segment"
            data-kind=${step.number ? outcomeKind(step.outcome) : "neutral"}
            tabindex="-1"
            aria-label="Step ${step.number}, ${spelledOut(outcomeLabel(step.outcome))}, ${timesOf(step)}"
            aria-current=${step.number === chosen ? "step" : "false"}
            ${ref(grow(shares[at]))}
            @click=${() => onChoose(step.number)}
            @mouseenter=${() => onHover(step)}
            @mouseleave=${() => onHover(null)}
          >
            <span class="segment-policy" ${ref(policy(step))}></span>
          </button>`,
        )}
      </div>
    </div>
  `;
}

const kept = new Map();

function thumbnail(episode, step) {
  const picture = step.pictures.find((found) => !found.isBlack);
  const path = `${picturePath(episode.episode, step.number, picture.name)}&thumbnail=1`;
  if (kept.size > 4 * MOST_PICTURES) kept.clear();
  if (!kept.has(path)) {
    const image = pictureElement(path, "");
    // For the space that it will take.
    image.width = picture.width;
    image.height = picture.height;
    kept.set(path, image);
  }
  return kept.get(path);
}

function lengthOf(step) {
  return step.seconds === undefined ? 1 : step.seconds + (step.policySeconds ?? 0);
}
