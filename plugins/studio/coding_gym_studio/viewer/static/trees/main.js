// The page of a saved search tree.

import { currentTheme, toggleTheme } from "/static/common/theme.js";
import { getJson, takeToken } from "../api.js";
import { TreeDrawing } from "./drawing.js";
import { EpisodePanel } from "./episode.js";
import { Outline } from "./outline.js";
import { MARKS, TreeModel } from "./tree-model.js";

const WIDE = matchMedia("(min-width: 64rem)");
const LEGEND = { good: "ok or solved", bad: "error or killed", warn: "limit or fault", neutral: "no outcome", best: "best path" };

const byId = (id) => document.getElementById(id);
takeToken();

async function open() {
  byId("banner").hidden = true;
  let data;
  try {
    data = await getJson("/api/tree");
  } catch (error) {
    byId("problem").textContent = error.message;
    byId("banner").hidden = false;
    byId("episode").replaceChildren();
    return;
  }
  show(new TreeModel(data));
  byId("workspace").setAttribute("aria-busy", "false");
}

function show(model) {
  document.title = `${model.name} · coding-gym`;
  byId("title").textContent = model.name;
  const count = `${model.count.toLocaleString("en")} ${model.count === 1 ? "node" : "nodes"}`;
  byId("summary").textContent = [count, model.environment].filter(Boolean).join(" · ");
  byId("legend").replaceChildren(...Object.entries(LEGEND).map(([kind, label]) => legendEntry(kind, label)), widthEntry());
  byId("drawing").setAttribute("aria-label", `Drawing of a tree of ${count}`);

  new Outline(byId("outline"), model);
  const drawing = new TreeDrawing(byId("drawing"), model);
  const episode = new EpisodePanel(byId("episode"), model);

  byId("best").addEventListener("click", () => model.select(model.best));
  byId("unfold").addEventListener("click", () => model.unfoldAll());
  byId("fold").addEventListener("click", () => model.foldAll());
  const tools = { "zoom-in": () => drawing.zoomIn(), "zoom-out": () => drawing.zoomOut(), fit: () => drawing.fit(), center: () => drawing.center() };
  byId("drawing-tools").addEventListener("click", (event) => tools[event.target.dataset.action]?.());
  byId("theme").addEventListener("click", () => drawing.recolor());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing.recolor());
  model.addEventListener("select", () => onSelect(model));

  const asked = Number(/^#\/node\/(\d+)$/.exec(location.hash)?.[1] ?? model.best);
  model.select(asked < model.count ? asked : model.best);
  episode.show();
  byId("outline").focus({ preventScroll: true });
}

function onSelect(model) {
  history.replaceState(null, "", `#/node/${model.selected}`);
  // The outline says by itself what it selects.
  if (document.activeElement !== byId("outline")) byId("announcement").textContent = model.describe(model.selected);
}

function legendEntry(kind, label) {
  const entry = document.createElement("li");
  const mark = document.createElement("span");
  mark.className = "mark";
  mark.dataset.kind = kind;
  mark.textContent = MARKS[kind] ?? "━";
  entry.append(mark, label);
  return entry;
}

function widthEntry() {
  const entry = document.createElement("li");
  entry.textContent = "wide edges: many visits";
  return entry;
}

function arrange() {
  byId("drawing-panel").open = WIDE.matches;
}

function labelTheme() {
  const isDark = currentTheme() === "dark";
  byId("theme").textContent = isDark ? "☀" : "☾";
  byId("theme").setAttribute("aria-label", isDark ? "Light theme" : "Dark theme");
}

WIDE.addEventListener("change", arrange);
arrange();
labelTheme();
byId("theme").addEventListener("click", () => {
  toggleTheme();
  labelTheme();
});
byId("retry").addEventListener("click", open);
document.querySelector(".skip-link").addEventListener("click", (event) => {
  event.preventDefault();
  byId("outline").focus();
});
open();
