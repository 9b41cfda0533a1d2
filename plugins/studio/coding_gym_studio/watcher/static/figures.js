// Figures of all sessions: the rate, what they do, outcomes, durations, pools.

import { html, nothing, svg } from "../common/vendor/lit-html/lit-html.js";
import { ref } from "../common/vendor/lit-html/directives/ref.js";
import { outcomeKind } from "../common/outcome.js";
import { STATES } from "./model.js";
import { count, duration, quantile, rate } from "./text.js";

const WIDTH = 240;
const HEIGHT = 44;

export function figures(model) {
  const { summary } = model;
  if (!summary) return nothing;
  return html`${rateCard(summary, model.isLive)} ${stateCard(model)} ${outcomeCard(summary)} ${durationCard(summary)}
  ${summary.pools.length ? poolCard(summary.pools) : nothing}`;
}

function rateCard(summary, isLive) {
  return html`<div class="panel figure">
    <h2>Steps per second</h2>
    <p class="figure-main number" id="rate">${rate(isLive ? summary.rate : 0)}</p>
    ${sparkline(summary.rates)}
    <p class="muted number">${rate(summary.minute_rate)} over a minute · ${count(summary.steps)} in all</p>
  </div>`;
}

function sparkline(values) {
  if (values.length < 2) return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg>`;
  const highest = Math.max(...values, 1);
  const step = WIDTH / Math.max(values.length - 1, 30);
  const left = WIDTH - step * (values.length - 1);
  const points = values.map((value, at) => `${(left + at * step).toFixed(1)},${(HEIGHT - 2 - (value / highest) * (HEIGHT - 6)).toFixed(1)}`);
  const line = points.join(" ");
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
    aria-label="The last ${values.length} seconds: at most ${highest} steps per second">
    ${svg`<polygon class="sparkline-area" points="${left.toFixed(1)},${HEIGHT} ${line} ${WIDTH},${HEIGHT}"></polygon>
    <polyline class="sparkline-line" points="${line}"></polyline>`}
  </svg>`;
}

function stateCard(model) {
  const counts = model.counts();
  const present = STATES.filter((state) => counts[state]);
  const total = model.sessions.size - counts.closed;
  const busy = total ? Math.round((counts.running / total) * 100) : 0;
  return html`<div class="panel figure">
    <h2>Sessions</h2>
    <p class="figure-main number">${count(total)}<span class="figure-unit">${busy} % running</span></p>
    ${bar(present.map((state) => [state, counts[state], `state-${state}`]))}
    <ul class="legend">${present.map((state) => html`<li><span class="key state-${state}"></span>${state} <b class="number">${count(counts[state])}</b></li>`)}</ul>
  </div>`;
}

function outcomeCard(summary) {
  const entries = Object.entries(summary.minute_outcomes).sort(([, one], [, other]) => other - one);
  const total = entries.reduce((sum, [, number]) => sum + number, 0);
  const { ok = 0, running = 0 } = summary.minute_outcomes;
  const fine = total ? Math.round(((ok + running) / total) * 100) : 0;
  return html`<div class="panel figure">
    <h2>Outcomes of the last minute</h2>
    <p class="figure-main number">${total ? html`${fine} %<span class="figure-unit">ok${running ? " or running" : ""}</span>` : "–"}</p>
    ${bar(entries.map(([outcome, number]) => [outcome, number, `outcome-${outcomeKind(outcome)}`]))}
    <ul class="legend">${entries.map(([outcome, number]) => html`<li><span class="key outcome-${outcomeKind(outcome)}"></span>${outcome} <b class="number">${count(number)}</b></li>`)}
    ${total ? nothing : html`<li class="muted">no steps</li>`}</ul>
  </div>`;
}

function durationCard(summary) {
  const rows = [
    ["step", summary.step_seconds],
    ["reset", summary.reset_seconds],
    ["wait", summary.wait_seconds],
  ];
  return html`<div class="panel figure">
    <h2>Recent durations</h2>
    <table class="durations number">
      <thead><tr><th scope="col"><span class="visually-hidden">what</span></th><th scope="col">median</th><th scope="col">95 %</th><th scope="col">longest</th></tr></thead>
      <tbody>${rows.map(([name, values]) => html`<tr><th scope="row">${name}</th>
        ${[0.5, 0.95, 1].map((share) => html`<td>${values.length ? duration(quantile(values, share)) : "–"}</td>`)}</tr>`)}</tbody>
    </table>
    <p class="muted number">${count(summary.episodes)} episodes, ${count(summary.waits)} waits for a sandbox</p>
  </div>`;
}

function poolCard(pools) {
  const sum = (name) => pools.reduce((total, pool) => total + pool[name], 0);
  const [busy, idle, starting, waiting] = ["busy", "idle", "starting", "waiting"].map(sum);
  const problems = [["lost", sum("lost")], ["failed to start", sum("failed")]].filter(([, number]) => number);
  return html`<div class="panel figure">
    <h2>${pools.length > 1 ? `${pools.length} pools` : "Pool"} of ${count(sum("sandboxes"))} sandboxes</h2>
    <p class="figure-main number">${count(idle)}<span class="figure-unit">of ${count(busy + idle + starting)} places free</span></p>
    ${bar([["busy", busy, "state-running"], ["free", idle, "state-idle"], ["starting", starting, "state-resetting"]])}
    <ul class="legend">
      <li><span class="key state-running"></span>busy <b class="number">${count(busy)}</b></li>
      <li><span class="key state-idle"></span>free <b class="number">${count(idle)}</b></li>
      ${starting ? html`<li><span class="key state-resetting"></span>starting <b class="number">${count(starting)}</b></li>` : nothing}
      <li class=${waiting ? "warning" : ""}>callers waiting <b class="number">${count(waiting)}</b></li>
      ${problems.map(([name, number]) => html`<li class="warning">sandboxes ${name} <b class="number">${count(number)}</b></li>`)}
    </ul>
  </div>`;
}

/** A bar whose parts have shares of its width; the legend says the same in words. */
function bar(parts) {
  const total = parts.reduce((sum, [, number]) => sum + number, 0);
  return html`<div class="bar" aria-hidden="true">${parts.filter(([, number]) => number).map(([name, number, className]) => html`<span class=${className} title="${name}: ${count(number)}" ${ref((part) => { if (part) part.style.flexGrow = number / total; })}></span>`)}</div>`;
}
