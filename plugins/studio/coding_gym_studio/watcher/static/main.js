// The page of coding-gym watch.

import { html, nothing, render } from "../common/vendor/lit-html/lit-html.js";
import { currentTheme, toggleTheme } from "../common/theme.js";
import { Detail } from "./detail.js";
import { figures } from "./figures.js";
import { Grid } from "./grid.js";
import { Model, ORDERS, STATES } from "./model.js";
import { follow, takeToken } from "./stream.js";
import { count } from "./text.js";
import { Thumbnails } from "./thumbnails.js";
import { createTile, fillTile } from "./tile.js";

const TICK_MS = 500;
const MANY = 256;

const part = (id) => document.getElementById(id);
const latest = new Model();
/** What is shown: the latest, or that of the moment at which the page was paused. */
let model = latest;
const view = { connection: "connecting", isPaused: false, state: null, outcome: null, order: "place", density: null };

const thumbnails = new Thumbnails(() => grid.render());
const grid = new Grid(part("grid"), { create: createTile, fill, onOpen: (session) => openDetail(session), onLeave: closeDetail });
const detail = new Detail(part("detail"), contextOf, closeDetail);

function nameOf(session) {
  const group = session.group === null || hasOneGroup() ? "" : `${session.group}.`;
  const process = model.processes.length > 1 ? `${model.process(session.process)?.pid ?? "?"}/` : "";
  return `#${process}${group}${session.index}`;
}

let groups = { of: null, isOne: true };

function hasOneGroup() {
  if (groups.of !== model.summary) {
    let first;
    let isOne = true;
    for (const session of model.sessions.values()) {
      const place = `${session.process} ${session.group}`;
      first ??= place;
      if (place !== first && session.process === Number(first.split(" ")[0])) isOne = false;
    }
    groups = { of: model.summary, isOne };
  }
  return groups.isOne;
}

function contextOf(session) {
  return { name: nameOf(session), age: model.age(session), isFrozen: model.isFrozen(session), process: model.process(session.process) };
}

function fill(tile, session) {
  const { name, age, isFrozen } = contextOf(session);
  fillTile(tile, session, { name, age, isFrozen, picture: thumbnails.get(session) });
}

function openDetail(session) {
  detail.open(session);
  part("layout").classList.add("with-detail");
  if (matchMedia("(max-width: 60rem)").matches) part("detail").querySelector("button")?.focus();
  grid.render();
}

function closeDetail() {
  if (!detail.isOpen) return;
  detail.close();
  part("layout").classList.remove("with-detail");
  grid.leave();
  part("grid").focus({ preventScroll: true });
}

function show() {
  renderHeader();
  renderBanner();
  renderEmpty();
  const isEmpty = !model.sessions.size;
  part("filters").hidden = isEmpty;
  part("grid").hidden = isEmpty;
  part("figures").hidden = !model.summary;
  render(figures(model), part("figures"));
  if (isEmpty) return;
  const chosen = model.select(view.state, view.outcome, view.order);
  renderFilters(chosen.length);
  const isCompact = (view.density ?? (model.sessions.size > MANY ? "compact" : "detailed")) === "compact";
  const hasScreens = !isCompact && chosen.some((session) => session.has_screen && session.picture);
  part("grid").classList.toggle("compact", isCompact);
  part("grid").classList.toggle("screens", hasScreens);
  grid.setSize(isCompact ? { width: 3.6, height: 2.4, gap: 0.3 } : { width: 17, height: hasScreens ? 19 : 10, gap: 0.75 });
  grid.show(chosen);
  if (hasScreens) thumbnails.update(grid.visible);
  if (detail.isOpen) detail.update(model.sessions.get(detail.session.key) ?? null);
}

const STATUS = { connecting: ["connecting", "neutral"], live: ["live", "good"], disconnected: ["disconnected", "bad"], refused: ["refused", "bad"] };

function status() {
  if (view.isPaused) return ["paused", "warn"];
  if (view.connection !== "live") return STATUS[view.connection];
  if (!model.processes.length) return ["waiting", "neutral"];
  return model.isLive ? STATUS.live : ["ended", "warn"];
}

function renderHeader() {
  const roots = [...new Map(model.processes.map((process) => [process.root, process])).values()];
  const [label, kind] = status();
  const pause = () => {
    view.isPaused = !view.isPaused;
    model = view.isPaused ? latest.snapshot() : latest;
    show();
  };
  const theme = () => {
    toggleTheme();
    renderHeader();
  };
  render(
    html`<h1>coding-gym watch</h1>
      <span class="trainer muted" title=${roots.map((process) => process.command).join("\n")}>${roots.map((process) => `${process.name} (${process.root})`).join(", ")}</span>
      <span class="badge" data-kind=${kind} role="status">${label}</span>
      <span class="spacer"></span>
      <span class="header-buttons"><button class="button" aria-pressed=${view.isPaused} @click=${pause} ?disabled=${!model.sessions.size}>${view.isPaused ? "Resume" : "Pause"}</button>
      <button class="button quiet" @click=${theme} aria-label="Use the ${currentTheme() === "dark" ? "light" : "dark"} theme">${currentTheme() === "dark" ? "☀" : "☾"}</button></span>`,
    part("header"),
  );
}

function renderBanner() {
  render(banner() ?? nothing, part("banner"));
}

function banner() {
  if (view.connection === "disconnected") {
    return html`<div class="banner" data-kind="bad">The connection to coding-gym watch is lost. This is the last picture; the page connects again by itself once the command runs at the same address.</div>`;
  }
  if (!model.processes.length) return null;
  const lost = model.processes.filter((process) => process.status === "lost");
  const at = (process) => new Date(process.ended_at * 1000).toLocaleTimeString();
  if (!model.isLive) {
    const last = model.processes.reduce((one, other) => (one.ended_at > other.ended_at ? one : other));
    return lost.length
      ? html`<div class="banner" data-kind="bad"><strong>The trainer died at ${at(last)}.</strong> It was killed, or crashed: this is its last picture.</div>`
      : html`<div class="banner"><strong>The trainer ended at ${at(last)}.</strong> This is its last picture.</div>`;
  }
  if (lost.length) {
    return html`<div class="banner" data-kind="warn">${lost.length > 1 ? `${lost.length} processes have` : `Process ${lost[0].pid} has`} died; the sessions there are shown as they were.</div>`;
  }
  return null;
}

function renderEmpty() {
  render(model.sessions.size ? nothing : empty(), part("empty"));
}

function empty() {
  if (view.connection === "refused") {
    return html`<div class="empty"><h2>This page needs its token.</h2><p>Open the whole address that <code>coding-gym watch</code> has printed, with what follows the <code>#</code>.</p></div>`;
  }
  if (view.connection === "connecting") return html`<div class="empty"><h2>Connecting …</h2></div>`;
  if (view.connection === "disconnected") return html`<div class="empty"><h2>Disconnected.</h2></div>`;
  if (!model.processes.length) {
    return html`<div class="empty">
      <h2>No trainer is running.</h2>
      <p>Start one that can be watched; it appears here by itself.</p>
      <pre class="code panel">CODING_GYM_WATCH=1 python train.py</pre>
      <p>Or, in the program:</p>
      <pre class="code panel">import coding_gym

coding_gym_studio.watch()</pre>
    </div>`;
  }
  return html`<div class="empty"><h2>${model.isLive ? "The trainer has no environment yet." : "The trainer had no environment."}</h2></div>`;
}

function renderFilters(shown) {
  const counts = model.counts();
  const outcomes = [...new Set([...Object.keys(model.summary?.outcomes ?? {}), view.outcome])].filter((outcome) => outcome !== null).sort();
  const isCompact = part("grid").classList.contains("compact");
  const choose = (change) => {
    Object.assign(view, change);
    show();
  };
  render(
    html`<button class="button" aria-pressed=${view.state === null} @click=${() => choose({ state: null })}>all <b class="number">${count(model.sessions.size)}</b></button>
      ${STATES.filter((state) => counts[state] || view.state === state).map((state) => html`<button class="button" aria-pressed=${view.state === state} @click=${() => choose({ state: view.state === state ? null : state })}><span class="key state-${state}"></span>${state} <b class="number">${count(counts[state])}</b></button>`)}
      <span class="spacer"></span>
      <span class="selects"><label>outcome <select class="field" @change=${(event) => choose({ outcome: event.target.value || null })}>
        <option value="" ?selected=${view.outcome === null}>any</option>
        ${outcomes.map((outcome) => html`<option value=${outcome} ?selected=${view.outcome === outcome}>${outcome}</option>`)}
      </select></label>
      <label>order <select class="field" @change=${(event) => choose({ order: event.target.value })}>
        ${Object.entries(ORDERS).map(([name, { label }]) => html`<option value=${name} ?selected=${view.order === name}>${label}</option>`)}
      </select></label>
      <label>tiles <select class="field" @change=${(event) => choose({ density: event.target.value })}>
        <option value="detailed" ?selected=${!isCompact}>detailed</option>
        <option value="compact" ?selected=${isCompact}>compact</option>
      </select></label></span>
      ${shown === 0 ? html`<p class="none muted" role="status">No session is like that at the moment.</p>` : nothing}`,
    part("filters"),
  );
}

function onState(state) {
  if (view.connection === state) return;
  view.connection = state;
  show();
}

setInterval(() => {
  if (!view.isPaused && !document.hidden) show();
}, TICK_MS);

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented) closeDetail();
});

if (takeToken()) follow((update, isComplete) => latest.apply(update, isComplete), onState);
else onState("refused");
show();
