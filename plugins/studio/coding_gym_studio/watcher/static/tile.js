// A tile: one session at a glance.

import { highlightInto } from "../common/highlight.js";
import { outcomeKind } from "../common/outcome.js";
import { plainText } from "../common/terminal.js";
import { duration, reward } from "./text.js";

const LINES = 12;

export function createTile() {
  const tile = document.createElement("div");
  tile.className = "tile";
  tile.role = "option";
  const head = add(tile, "div", "tile-head");
  tile.name = add(head, "span", "tile-index number");
  tile.label = add(head, "span", "tile-label muted");
  tile.badge = add(head, "span", "badge");
  tile.screen = add(tile, "img", "tile-screen");
  tile.screen.alt = "";
  tile.screen.decoding = "async";
  tile.code = add(tile, "pre", "tile-code");
  const foot = add(tile, "div", "tile-foot");
  add(foot, "span", "dot");
  tile.state = add(foot, "span", "tile-state number");
  tile.steps = add(foot, "span", "tile-steps number muted");
  tile.reward = add(foot, "span", "tile-reward number");
  return tile;
}

function add(parent, name, className) {
  const element = document.createElement(name);
  element.className = className;
  parent.append(element);
  return element;
}

/**
 * Shows a session in a tile.
 * @param {HTMLElement} tile
 * @param {object} session
 * @param {object} context
 * @param {number} context.age Seconds for which the session has been in its state.
 * @param {boolean} context.isFrozen Whether its process has ended.
 * @param {string} context.name Its name.
 * @param {string | null} context.picture Address of its screen's picture.
 */
export function fillTile(tile, session, { age, isFrozen, name, picture }) {
  const state = stateText(session, age);
  set(tile.state, state);
  if (tile.session === session && tile.isFrozen === isFrozen && tile.picture === picture) return;
  const isSameAction = tile.session?.key === session.key && tile.session.action === session.action;
  tile.session = session;
  tile.isFrozen = isFrozen;
  tile.picture = picture;
  tile.dataset.state = session.state;
  tile.classList.toggle("frozen", isFrozen);
  set(tile.name, name);
  set(tile.label, session.label ?? "");
  // The code is that of the running step, the outcome that of the one before.
  const isEarlier = session.state === "running";
  set(tile.badge, isEarlier ? `was ${session.outcome}` : (session.outcome ?? ""));
  tile.badge.hidden = session.outcome === null;
  tile.badge.classList.toggle("earlier", isEarlier);
  tile.dataset.kind = tile.badge.dataset.kind = session.outcome === null ? "none" : outcomeKind(session.outcome);
  if (!isSameAction) {
    const lines = plainText(session.action).split("\n");
    highlightInto(tile.code, lines.slice(0, LINES).join("\n"), session.language);
  }
  // Most sessions have a screen, and few programs draw on it.
  tile.screen.hidden = !picture;
  if (picture) tile.screen.src = picture;
  else tile.screen.removeAttribute("src");
  set(tile.steps, session.episodes ? `step ${session.steps} · ep. ${session.episodes}` : "");
  const gained = session.tests ? `${session.tests[0]}/${session.tests[1]} tests` : reward(session.episode_return);
  set(tile.reward, gained);
  tile.reward.dataset.kind = session.episode_return > 0 ? "good" : session.episode_return < 0 ? "bad" : "none";
  tile.setAttribute("aria-label", description(session, name, gained));
  tile.title = `${name}${session.label ? ` ${session.label}` : ""}: ${session.state}${session.outcome ? `, ${session.outcome}` : ""}`;
}

function stateText(session, age) {
  const name = session.state === "ended" ? "episode ended" : session.state;
  return session.state === "closed" ? name : `${name} ${duration(age)}`;
}

function description(session, name, gained) {
  const outcome = session.outcome ? `, last outcome ${session.outcome}` : "";
  return `Session ${name}${session.label ? `, ${session.label}` : ""}, ${session.state}${outcome}, step ${session.steps} of episode ${session.episodes}${gained ? `, ${gained}` : ""}`;
}

/** Sets a text only if it is another one: every change costs layout. */
function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
