// The page: its layout, and what connects its parts.

import { html, nothing, render } from "../common/vendor/lit-html/lit-html.js";
import { repeat } from "../common/vendor/lit-html/directives/repeat.js";
import { currentTheme, toggleTheme } from "../common/theme.js";
import { Editor } from "./editor.js";
import { EXAMPLES } from "./examples.js";
import { Files } from "./files.js";
import { ResetDialog } from "./reset-dialog.js";
import { LiveScreen } from "./screen.js";
import { Server, takeToken } from "./server.js";
import { Workbench } from "./workbench.js";

const TABS = { screen: "Screen", files: "Files", state: "Session" };
const wide = matchMedia("(min-width: 150rem)");
const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
let tab = "screen";
let isScheduled = false;

const server = new Server();
const workbench = new Workbench(server, {
  onChange: update,
  onSession: (session) => {
    screen.show(session);
    files.show(session);
    files.refresh();
    editor.setLanguage(workbench.language);
  },
  onStep: () => {
    files.refresh();
    screen.wake();
  },
  announce,
  onEdit: (code) => {
    editor.code = code;
    editor.focus();
  },
});
const editor = new Editor({ onRun: run, onChange: update });
const files = new Files(server, { onChange: update, announce });
const screen = new LiveScreen(server, { sendInputs: (events) => workbench.sendInputs(events), onChange: update });
const resetDialog = new ResetDialog({ onReset: (options, onIdle) => workbench.reset(options, onIdle), onChange: update });

function announce(text) {
  document.querySelector("#announcements").textContent = text;
}

/** Renders the page soon, once for any number of calls. */
function update() {
  if (isScheduled) return;
  isScheduled = true;
  queueMicrotask(() => {
    isScheduled = false;
    const wasInToolbar = document.activeElement.matches(".editor-toolbar button");
    render(page(), document.querySelector("#app"));
    // The buttons to run and to interrupt take each other's place, and the focus with them.
    if (wasInToolbar && document.activeElement === document.body) document.querySelector(".editor-toolbar button")?.focus();
  });
}

function run() {
  const { code } = editor;
  if (workbench.running || workbench.status !== "ready" || !code.trim()) return;
  editor.remember(code);
  workbench.run(code);
}

function page() {
  if (!workbench.info) return beginning();
  return html`
    ${header()} ${banner()}
    <main class="workbench" data-wide=${wide.matches ? "yes" : "no"}>
      <section class="code-column" aria-label="Code and output">${editorPanel()} ${cellList()}</section>
      ${wide.matches ? allPanels() : tabbedPanels()}
      ${wide.matches ? nothing : html`<a class="button to-side" href="#side" @click=${() => selectTab("screen")}>Screen</a>`}
    </main>
    ${resetDialog.template(workbench.info, workbench.backend)}
  `;
}

/** What the page shows before the server has said what it is. */
function beginning() {
  if (workbench.status === "connecting") return html`<main class="beginning"><p class="empty" role="status">Connecting …</p></main>`;
  return html`<main class="beginning">
    <div class="panel beginning-panel">
      <h1>coding_gym</h1>
      ${workbench.status === "token" ? tokenForm() : refusal()}
    </div>
  </main>`;
}

function tokenForm() {
  return html`<form class="token-form" @submit=${onToken}>
    <p>This server requires a token. It is in the address that <code>coding-gym serve</code> prints.</p>
    <label class="form-field"><span>Token</span><input class="field" name="token" type="password" autocomplete="off" required autofocus /></label>
    ${workbench.reason ? html`<p class="notice" data-kind="bad" role="alert">${workbench.reason}</p>` : nothing}
    <button class="button primary">Connect</button>
  </form>`;
}

function onToken(event) {
  event.preventDefault();
  workbench.connect(new FormData(event.target).get("token"));
}

function refusal() {
  return html`<p class="notice" data-kind="bad" role="alert">${workbench.reason}</p>
    <button type="button" class="button primary" @click=${() => workbench.connect()}>Try again</button>`;
}

function header() {
  const { info, status } = workbench;
  const kinds = { ready: "good", connecting: "neutral" };
  return html`<header class="app-header">
    <h1>coding_gym</h1>
    <span class="muted number header-version">${info.version}</span>
    <span class="badge" title="Backend">${workbench.backend}</span>
    <span class="badge" data-kind=${kinds[status] ?? "bad"}>${status === "ready" ? "connected" : status}</span>
    <span class="spacer"></span>
    <button type="button" class="button" ?disabled=${status !== "ready" || Boolean(workbench.running)} @click=${() => resetDialog.open()}>
      Reset …
    </button>
    <button type="button" class="button" @click=${onTheme}>${currentTheme() === "dark" ? "Light" : "Dark"}</button>
  </header>`;
}

function onTheme() {
  toggleTheme();
  update();
}

function banner() {
  const { status, reason } = workbench;
  if (status === "ready" || status === "connecting") return nothing;
  if (status === "token") return html`<div class="banner" data-kind="warn">${tokenForm()}</div>`;
  const text = status === "lost" ? `${reason} Its session has ended, with its variables and files.` : reason;
  return html`<div class="banner" data-kind="bad" role="alert">
    <span>${text}</span>
    <button type="button" class="button" @click=${() => workbench.connect()}>${status === "lost" ? "Reconnect" : "Try again"}</button>
  </div>`;
}

function editorPanel() {
  const { running, status } = workbench;
  return html`<div class="panel editor-panel">
    ${editor.element}
    <div class="toolbar editor-toolbar">
      ${running
        ? html`<button type="button" class="button stop" ?disabled=${workbench.isInterrupting} @click=${() => workbench.interrupt()}>
            ${workbench.isInterrupting ? "Interrupting …" : "Interrupt"}
          </button>`
        : html`<button type="button" class="button primary" ?disabled=${status !== "ready" || !editor.code.trim()} @click=${run}>Run</button>`}
      <label class="limit">
        <span class="muted">Limit</span>
        <input
          class="field"
          type="number"
          min="0.1"
          step="any"
          aria-label="Time limit of a run in seconds"
          .value=${String(workbench.stepTimeout)}
          @change=${onLimit}
        />
        <span class="muted">s</span>
      </label>
      <span class="spacer"></span>
      <span id="editor-keys" class="muted keys">
        <span><kbd>${isMac ? "⌘" : "Ctrl"}</kbd> <kbd>Enter</kbd> runs</span>
        <span><kbd>Alt</kbd> <kbd>↑</kbd> recalls</span>
        <span><kbd>Esc</kbd> <kbd>Tab</kbd> leaves</span>
      </span>
    </div>
  </div>`;
}

function onLimit(event) {
  const seconds = Number(event.target.value);
  workbench.limit = seconds > 0 ? seconds : null;
  update();
}

function cellList() {
  const { cells } = workbench;
  if (cells.length === 0) return emptyList();
  return html`<div class="toolbar runs-toolbar">
      <h2>Runs</h2>
      <span class="spacer"></span>
      <button type="button" class="button quiet" @click=${() => workbench.clear()}>Clear</button>
    </div>
    <div class="runs">${repeat(
      cells,
      // An element that moves would lose its scroll positions, its focus, and what its frames show.
      (cell) => cell.number,
      (cell) => cell.element,
    )}</div>`;
}

function emptyList() {
  const examples = EXAMPLES[workbench.language] ?? [];
  return html`<div class="empty runs-empty">
    <h2>Nothing has run yet</h2>
    <p>Variables, files and windows stay from run to run, until the session is reset.</p>
    <div class="toolbar">
      ${examples.map(
        ([title, code]) => html`<button type="button" class="button" @click=${() => workbench.handlers.onEdit(code)}>${title}</button>`,
      )}
    </div>
  </div>`;
}

function tabbedPanels() {
  return html`<section id="side" class="side-column panel" aria-label="Screen, files and session">
    <div class="tabs" role="tablist" @keydown=${onTabKey}>
      ${Object.entries(TABS).map(
        ([name, title]) => html`<button
          type="button"
          role="tab"
          id=${`tab-${name}`}
          aria-selected=${tab === name ? "true" : "false"}
          aria-controls="side-panel"
          tabindex=${tab === name ? 0 : -1}
          @click=${() => selectTab(name)}
        >
          ${title}
        </button>`,
      )}
    </div>
    <div class="side-panel" id="side-panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>${panel(tab)}</div>
  </section>`;
}

function allPanels() {
  return html`${Object.entries(TABS).map(
    ([name, title]) => html`<section class=${`side-column panel side-${name}`} aria-label=${title}>
      <h2 class="side-title">${title}</h2>
      <div class="side-panel">${panel(name)}</div>
    </section>`,
  )}`;
}

function selectTab(name) {
  tab = name;
  if (name === "files") files.refresh();
  update();
  if (name === "screen") screen.wake();
}

function onTabKey(event) {
  const names = Object.keys(TABS);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  selectTab(names[(names.indexOf(tab) + step + names.length) % names.length]);
  queueMicrotask(() => document.querySelector(`#tab-${tab}`).focus());
}

function panel(name) {
  if (name === "screen") return screenPanel();
  return name === "files" ? files.template() : statePanel();
}

function screenPanel() {
  const { kind, windows, reason, width, height } = screen.state;
  const isShown = kind === "live" || kind === "waiting";
  return html`
    <div class="screen" ?hidden=${!isShown} @leave=${() => document.querySelector("#screen-text").focus()}>
      <div class="screen-frame">${screen.canvas}${windows === 0 ? html`<p class="screen-empty">Windows of your programs appear here.</p>` : nothing}</div>
      <form class="toolbar screen-toolbar" @submit=${onType}>
        <input class="field" id="screen-text" name="text" aria-label="Text to type on the screen" placeholder="Text to type" autocomplete="off" />
        <button class="button">Type</button>
        <span class="spacer"></span>
        <button type="button" class="button" @click=${onFullScreen}>Full screen</button>
      </form>
      <p class="muted screen-facts">
        <span class="number">${width ? `${width} × ${height} pixels` : ""}</span>
        <span class="keys"><span>A click gives it the keyboard, <kbd>Ctrl</kbd> <kbd>Alt</kbd> takes it back</span></span>
      </p>
    </div>
    ${isShown ? nothing : html`<div class="empty"><h2>No screen</h2><p>${reason || "There is no session."}</p></div>`}
  `;
}

function onType(event) {
  event.preventDefault();
  const field = event.target.elements.text;
  if (field.value) screen.type(field.value);
  field.value = "";
}

function onFullScreen() {
  document.querySelector(".screen-frame").requestFullscreen?.();
  screen.canvas.focus();
}

function statePanel() {
  const { state, session, info, options } = workbench;
  const { limits } = info;
  const rows = [
    ["Episode", state?.episode_id ?? "–"],
    ["Steps", state?.step_count ?? "–"],
    ["Last exit code", state?.last_exit_code ?? "–"],
    ["Session ID", session?.id ?? "–"],
    ["Backend", workbench.backend],
    ["Language", workbench.language],
    ["Time limit of a run", `${workbench.stepTimeout} s`],
    ["Options of the reset", describe(options ?? {})],
    ["Sessions of the server", `${limits.active_sessions} of ${limits.max_sessions} when this page connected`],
    ["Protocol", info.protocol_version],
  ];
  return html`<table class="data state-table">
    <tbody>
      ${rows.map(([name, value]) => html`<tr><th scope="row">${name}</th><td class="number">${value}</td></tr>`)}
    </tbody>
  </table>`;
}

/** Returns the options that differ from the page's own, as text. */
function describe({ results, show_value, files: contents, ...options }) {
  if (contents) options.files = Object.keys(contents);
  const entries = Object.entries(options);
  return entries.length === 0 ? "defaults" : entries.map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
}

wide.addEventListener("change", update);
// An address with a token that is opened in this tab changes only the fragment, and does not load the page again.
addEventListener("hashchange", () => {
  const token = takeToken();
  if (token !== null) workbench.useToken(token);
});
// What the page shows until its modules are loaded.
document.querySelector("#app").replaceChildren();
update();
workbench.connect();
