// The dialog of a reset, with the options that the protocol has for it.

import { html, nothing } from "../common/vendor/lit-html/lit-html.js";

const REWARDS = ["safety", "quality"];

/** Returns the options of the session that a new page begins with. */
export function firstOptions() {
  // Values are their own results, so that they can be told from what the code printed.
  return { results: true, show_value: false, rewards: [] };
}

function base64Of(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  return btoa(text);
}

/** Returns the content of chosen files by name, as the protocol has it. */
async function contentsOf(files) {
  const contents = {};
  for (const file of files) contents[file.name] = { base64: base64Of(new Uint8Array(await file.arrayBuffer())) };
  return contents;
}

/** Returns the options of a reset that a form describes. */
async function optionsOf(form) {
  const data = new FormData(form);
  const options = firstOptions();
  const text = (name) => String(data.get(name) ?? "").trim();
  options.backend = text("backend");
  for (const name of ["seed", "step_timeout", "cpu_timeout", "max_output_chars"]) if (text(name)) options[name] = Number(text(name));
  if (text("episode_id")) options.episode_id = text("episode_id");
  if (text("screen") === "none") options.screen = null;
  else if (text("screen") === "own") options.screen = [Number(text("width")), Number(text("height"))];
  if (data.get("window_manager") && options.screen !== null) options.window_manager = true;
  options.rewards = data.getAll("rewards");
  const files = data.getAll("files").filter((file) => file.name);
  if (files.length > 0) options.files = await contentsOf(files);
  return options;
}

/** The dialog. */
export class ResetDialog {
  /**
   * @param {object} handlers
   * @param {(options: object, onIdle: string) => Promise<void>} handlers.onReset Resets the session; its errors are shown.
   * @param {() => void} handlers.onChange Called when the dialog is to be rendered again.
   */
  constructor({ onReset, onChange }) {
    this.onReset = onReset;
    this.onChange = onChange;
    this.problem = "";
    this.isBusy = false;
    this.screen = "default";
  }

  open() {
    this.problem = "";
    this.onChange();
    document.querySelector("#reset-dialog").showModal();
  }

  close() {
    document.querySelector("#reset-dialog").close();
  }

  async #submit(event) {
    event.preventDefault();
    this.isBusy = true;
    this.problem = "";
    this.onChange();
    try {
      const form = event.target;
      await this.onReset(await optionsOf(form), new FormData(form).get("on_idle"));
      this.close();
    } catch (error) {
      this.problem = error.message;
    } finally {
      this.isBusy = false;
      this.onChange();
    }
  }

  /**
   * @param {object} info What the server says of itself.
   * @param {string} backend Backend of the session.
   */
  template(info, backend) {
    const { defaults, limits } = info;
    const [least, most] = limits.screen_side;
    const number = (name, label, attributes) => html`
      <label class="form-field">
        <span>${label}</span>
        <input
          class="field"
          name=${name}
          type="number"
          inputmode="decimal"
          min=${attributes.min}
          step=${attributes.step ?? "any"}
          placeholder=${attributes.placeholder}
        />
      </label>
    `;
    return html`
      <dialog id="reset-dialog" aria-labelledby="reset-title">
        <form class="form" @submit=${(event) => this.#submit(event)}>
          <h2 id="reset-title">Reset the session</h2>
          <p class="muted">Ends its programs, and starts a fresh interpreter in an empty directory.</p>
          <label class="form-field form-wide">
            <span>Backend</span>
            <select class="field" name="backend">
              ${info.backends.map(
                ({ name, language, title }) => html`<option value=${name} ?selected=${name === backend}>
                  ${title === name ? name : `${name} (${title})`}${language && language !== name ? ` – ${language}` : ""}
                </option>`,
              )}
            </select>
          </label>
          ${number("seed", "Seed", { min: 0, step: 1, placeholder: "random" })}
          ${number("step_timeout", "Time limit of a run, s", { min: 0.01, placeholder: defaults.step_timeout })}
          ${number("cpu_timeout", "CPU limit of a run, s", { min: 0.01, placeholder: defaults.cpu_timeout ?? "none" })}
          ${number("max_output_chars", "Most characters of output", { min: 256, step: 1, placeholder: defaults.max_output_chars })}
          <label class="form-field">
            <span>Episode ID</span>
            <input class="field" name="episode_id" maxlength="255" placeholder="random" />
          </label>
          <label class="form-field">
            <span>Screen</span>
            <select class="field" name="screen" @change=${(event) => this.#onScreen(event)}>
              <option value="default">${info.screens ? `default (${defaults.screen.join(" × ")})` : "default (not installed)"}</option>
              <option value="own" ?disabled=${!info.screens}>other size</option>
              <option value="none">none</option>
            </select>
          </label>
          ${this.screen === "own"
            ? html`${["width", "height"].map(
                (name, index) => html`<label class="form-field">
                  <span>${name === "width" ? "Width" : "Height"}, pixels</span>
                  <input class="field" name=${name} type="number" required min=${least} max=${most} .value=${String(defaults.screen[index])} />
                </label>`,
              )}`
            : nothing}
          <label class="form-field">
            <span>A program that waits for events</span>
            <select class="field" name="on_idle">
              <option value="return">keeps running</option>
              <option value="close">is closed</option>
            </select>
          </label>
          <label class="form-field form-wide">
            <span>Files in the working directory</span>
            <input class="field" name="files" type="file" multiple />
          </label>
          <fieldset class="form-wide form-checks">
            <legend>Further options</legend>
            <label><input type="checkbox" name="window_manager" ?disabled=${!info.window_manager || !info.screens} /> Window manager</label>
            ${REWARDS.map(
              (name) => html`<label><input type="checkbox" name="rewards" value=${name} /> Reward “${name}”</label>`,
            )}
          </fieldset>
          ${this.problem ? html`<p class="notice form-wide" data-kind="bad" role="alert">${this.problem}</p>` : nothing}
          <div class="toolbar form-wide form-actions">
            <button type="button" class="button" @click=${() => this.close()}>Cancel</button>
            <button class="button primary" ?disabled=${this.isBusy}>${this.isBusy ? "Resetting …" : "Reset"}</button>
          </div>
        </form>
      </dialog>
    `;
  }

  #onScreen(event) {
    this.screen = event.target.value;
    this.onChange();
  }
}
