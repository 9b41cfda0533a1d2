// The files of the session's working directory: a list, uploads, downloads and removal.

import { html, nothing } from "../common/vendor/lit-html/lit-html.js";
import { VirtualList } from "../common/virtual-list.js";

const ROW_REMS = 2.4;
/** What the server's list has in place of bytes of a name that are not UTF-8; such names cannot be part of a request. */
const REPLACEMENT = "\ufffd";
const NOT_UTF8 = "name is not UTF-8: use code";
const UNITS = ["B", "kB", "MB", "GB"];

/** Returns a number of bytes for people. */
export function formatBytes(count) {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Makes a button ask for a deletion, or for its confirmation. */
function armDeletion(button, entry, isArmed) {
  button.dataset.armed = isArmed ? "yes" : "no";
  button.textContent = isArmed ? "Really delete?" : "Delete";
  button.setAttribute("aria-label", isArmed ? `Really delete ${entry.name}?` : `Delete ${entry.name}`);
}

/** The files of a session. */
export class Files {
  /**
   * @param {import("./server.js").Server} server
   * @param {object} handlers
   * @param {() => void} handlers.onChange Called when the panel is to be rendered again.
   * @param {(text: string) => void} handlers.announce
   */
  constructor(server, { onChange, announce }) {
    this.server = server;
    this.onChange = onChange;
    this.announce = announce;
    this.session = null;
    this.directory = [];
    this.entries = null;
    this.problem = "";
    this.progress = "";
    this.isTarget = false;
    this.viewport = make("div", "files-list");
    this.viewport.setAttribute("role", "list");
    this.viewport.setAttribute("aria-label", "Files");
    const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.list = new VirtualList(this.viewport, { rowHeight: ROW_REMS * rem, renderRow: (index) => this.#row(this.entries[index]) });
    this.list.space.setAttribute("role", "presentation");
  }

  /** Shows the files of a session, or none. */
  show(session) {
    this.session = session;
    this.directory = [];
    this.entries = null;
    this.problem = "";
    this.onChange();
  }

  /** Reads the directory again. */
  async refresh() {
    const { session } = this;
    if (!session) return;
    const path = this.directory.join("/") || ".";
    try {
      const response = await this.server.fetch(`/sessions/${session.id}/files?path=${encodeURIComponent(path)}`);
      const { entries } = await response.json();
      if (session !== this.session || path !== (this.directory.join("/") || ".")) return;
      const rank = (entry) => (entry.type === "dir" ? 0 : 1);
      this.entries = entries.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
      this.problem = "";
    } catch (error) {
      if (session !== this.session) return;
      if (this.directory.length > 0) {
        // The code has removed the directory that is shown.
        this.directory = [];
        await this.refresh();
        return;
      }
      this.problem = error.message;
      this.entries = [];
    }
    this.list.setCount(this.entries.length);
    this.onChange();
  }

  /** Uploads files into the directory that is shown. */
  async upload(files) {
    const chosen = [...files];
    for (const [index, file] of chosen.entries()) {
      this.progress = `Uploading ${file.name} (${index + 1} of ${chosen.length}) …`;
      this.onChange();
      const done = await this.#attempt(`Upload of ${file.name}`, () =>
        this.server.fetch(this.#address(file.name), { method: "PUT", body: file }),
      );
      if (!done) break;
      this.announce(`Uploaded ${file.name}`);
    }
    this.progress = "";
    await this.#refreshKeepingProblem();
  }

  template() {
    if (!this.session) return html`<p class="empty">No session</p>`;
    return html`
      <div class="toolbar files-toolbar">
        <nav class="files-path" aria-label="Directory">
          <button type="button" class="button quiet" @click=${() => this.#open([])}>work</button>
          ${this.directory.map(
            (name, index) => html`<span class="muted" aria-hidden="true">/</span>
              <button type="button" class="button quiet" @click=${() => this.#open(this.directory.slice(0, index + 1))}>${name}</button>`,
          )}
        </nav>
        <span class="spacer"></span>
        <button type="button" class="button" @click=${() => this.refresh()}>Refresh</button>
        <label class="button">
          Upload
          <input class="visually-hidden" type="file" multiple aria-label="Files to upload" @change=${(event) => this.#onChosen(event)} />
        </label>
      </div>
      ${this.problem ? html`<p class="notice" data-kind="bad" role="alert">${this.problem}</p>` : nothing}
      ${this.progress ? html`<p class="notice" role="status">${this.progress}</p>` : nothing}
      <div
        class="files-drop"
        data-target=${this.isTarget ? "yes" : "no"}
        @dragover=${(event) => this.#onDrag(event, true)}
        @dragleave=${(event) => this.#onDrag(event, false)}
        @drop=${(event) => this.#onDrop(event)}
      >
        ${this.entries?.length === 0 ? html`<p class="empty">No files here. Drop some, or write them with code.</p>` : nothing}
        ${this.entries === null ? html`<p class="empty">Loading …</p>` : nothing}
        <div ?hidden=${!this.entries?.length}>${this.viewport}</div>
      </div>
    `;
  }

  #row(entry) {
    const row = make("div", "files-row");
    row.setAttribute("role", "listitem");
    const isDirectory = entry.type === "dir";
    if (entry.name.includes(REPLACEMENT)) {
      row.append(make("span", "files-name muted", isDirectory ? `${entry.name}/` : entry.name), make("span", "muted files-size", NOT_UTF8));
      return row;
    }
    const name = make("button", "button quiet files-name", isDirectory ? `${entry.name}/` : entry.name);
    name.type = "button";
    name.title = isDirectory ? `Open ${entry.name}` : `Download ${entry.name}`;
    name.addEventListener("click", () => (isDirectory ? this.#open([...this.directory, entry.name]) : this.#download(entry)));
    const size = make("span", "muted number files-size", entry.size === null ? "" : formatBytes(entry.size));
    const remove = make("button", "button quiet files-delete");
    remove.type = "button";
    armDeletion(remove, entry, false);
    remove.addEventListener("click", () => this.#remove(entry, remove));
    row.append(name, size, remove);
    return row;
  }

  #address(name) {
    const path = [...this.directory, name].map(encodeURIComponent).join("/");
    return `/sessions/${this.session.id}/files/${path}`;
  }

  async #open(directory) {
    this.directory = directory;
    this.entries = null;
    this.onChange();
    await this.refresh();
  }

  async #download(entry) {
    this.progress = `Downloading ${entry.name} …`;
    this.onChange();
    await this.#attempt(`Download of ${entry.name}`, async () => {
      const response = await this.server.fetch(this.#address(entry.name));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await response.blob());
      link.download = entry.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    });
    this.progress = "";
    this.onChange();
  }

  /** Removes a file or a directory at the second click. */
  async #remove(entry, button) {
    if (button.dataset.armed !== "yes") {
      armDeletion(button, entry, true);
      button.addEventListener("blur", () => armDeletion(button, entry, false), { once: true });
      return;
    }
    await this.#attempt(`Deletion of ${entry.name}`, () => this.server.fetch(this.#address(entry.name), { method: "DELETE" }));
    this.announce(`Deleted ${entry.name}`);
    await this.#refreshKeepingProblem();
  }

  async #attempt(what, work) {
    try {
      await work();
      this.problem = "";
      return true;
    } catch (error) {
      this.problem = `${what} failed: ${error.message}`;
      return false;
    }
  }

  async #refreshKeepingProblem() {
    const { problem } = this;
    await this.refresh();
    this.problem ||= problem;
    this.onChange();
  }

  #onChosen(event) {
    this.upload(event.target.files);
    event.target.value = "";
  }

  #onDrag(event, isTarget) {
    event.preventDefault();
    if (this.isTarget === isTarget) return;
    this.isTarget = isTarget;
    this.onChange();
  }

  #onDrop(event) {
    this.#onDrag(event, false);
    if (event.dataTransfer.files.length > 0) this.upload(event.dataTransfer.files);
  }
}
