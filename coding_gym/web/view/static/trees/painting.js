// Painting of the visible part of a tree: edges as wide as their visits, and nodes in the colors of their outcomes.

import { MARKS, shortNumber } from "./tree-model.js";

/** Size of a node's box, in pixels at scale 1. */
export const BOX = { width: 176, height: 26 };

/** Distance of nodes: between levels, and between siblings. */
export const CELL = { width: 236, height: 34 };

/** Scales from which boxes have text, and rounded outlines. */
const TEXT_SCALE = 0.55;
const SHAPE_SCALE = 0.16;

const WIDTHS = 6;
const WIDEST = 9;
const KINDS = ["good", "bad", "warn", "neutral"];
const TOKENS = {
  text: "--text",
  muted: "--text-muted",
  surface: "--surface",
  line: "--line-strong",
  accent: "--accent",
  good: "--good",
  "good-soft": "--good-soft",
  bad: "--bad",
  "bad-soft": "--bad-soft",
  warn: "--warn",
  "warn-soft": "--warn-soft",
  neutral: "--text-muted",
  "neutral-soft": "--surface-2",
};

/** Returns the colors of the present theme, as a canvas takes them, and the face of code. */
export function readColors(element) {
  const probe = document.createElement("span");
  element.after(probe);
  const colors = {};
  for (const [name, token] of Object.entries(TOKENS)) {
    probe.style.color = `var(${token})`;
    colors[name] = getComputedStyle(probe).color;
  }
  probe.style.fontFamily = "var(--font-code)";
  colors.font = getComputedStyle(probe).fontFamily;
  probe.remove();
  return colors;
}

/** Paints a drawing. @param {import("./drawing.js").TreeDrawing} drawing */
export function paint(drawing) {
  const { context, canvas, view, width, height } = drawing;
  const ratio = canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  const area = {
    left: -view.x / view.scale,
    right: (width - view.x) / view.scale,
    top: -view.y / view.scale,
    bottom: (height - view.y) / view.scale,
  };
  paintEdges(drawing, area);
  paintNodes(drawing, area);
}

function paintEdges({ context, model, y, view, colors }, area) {
  const paths = new Map();
  const most = Math.sqrt(Math.max(1, model.visits[0]));
  const isStraight = view.scale < SHAPE_SCALE;
  for (const id of model.rows) {
    if (!id) continue;
    const above = model.parent[id];
    const startX = model.depth[above] * CELL.width + BOX.width;
    const endX = model.depth[id] * CELL.width;
    const startY = y[above] * CELL.height;
    const endY = y[id] * CELL.height;
    if (startX > area.right || endX < area.left) continue;
    if (Math.max(startY, endY) < area.top || Math.min(startY, endY) > area.bottom) continue;
    const step = Math.ceil((Math.sqrt(model.visits[id]) / most) * WIDTHS);
    const key = model.onBestPath[id] ? WIDTHS + 1 + step : step;
    if (!paths.has(key)) paths.set(key, new Path2D());
    const path = paths.get(key);
    path.moveTo(startX, startY);
    const middle = (startX + endX) / 2;
    if (isStraight) path.lineTo(endX, endY);
    else path.bezierCurveTo(middle, startY, middle, endY, endX, endY);
  }
  // Those of the best path last, on top of the others.
  for (const [key, path] of [...paths].sort(([one], [other]) => one - other)) {
    const isBest = key > WIDTHS;
    const step = isBest ? key - WIDTHS - 1 : key;
    context.strokeStyle = isBest ? colors.accent : colors.line;
    context.globalAlpha = isBest ? 1 : 0.55;
    context.lineWidth = Math.max(1 + ((WIDEST - 1) * step) / WIDTHS, (isBest ? 2 : 0.7) / view.scale);
    context.stroke(path);
  }
  context.globalAlpha = 1;
}

function paintNodes(drawing, area) {
  const { model, y, view } = drawing;
  const visible = Object.fromEntries(KINDS.map((kind) => [kind, []]));
  for (const id of model.rows) {
    const left = model.depth[id] * CELL.width;
    const middle = y[id] * CELL.height;
    if (left > area.right || left + BOX.width < area.left) continue;
    if (middle + BOX.height < area.top || middle - BOX.height > area.bottom) continue;
    visible[model.kindOf(id)].push(id);
  }
  for (const kind of KINDS) paintBoxes(drawing, kind, visible[kind]);
  if (view.scale >= TEXT_SCALE) for (const kind of KINDS) for (const id of visible[kind]) paintText(drawing, kind, id);
  paintSelection(drawing);
}

function paintBoxes({ context, model, y, view, colors }, kind, ids) {
  const shapes = new Path2D();
  const best = new Path2D();
  const isSmall = view.scale < SHAPE_SCALE;
  const height = isSmall ? Math.max(BOX.height, 1.5 / view.scale) : BOX.height;
  for (const id of ids) {
    const [left, top] = [model.depth[id] * CELL.width, y[id] * CELL.height - height / 2];
    if (isSmall) shapes.rect(left, top, BOX.width, height);
    else shapes.roundRect(left, top, BOX.width, height, 6);
    if (model.onBestPath[id] && !isSmall) best.roundRect(left, top, BOX.width, height, 6);
  }
  context.fillStyle = isSmall ? colors[kind] : colors[`${kind}-soft`];
  context.fill(shapes);
  if (isSmall) return;
  context.strokeStyle = colors[kind];
  context.lineWidth = Math.max(1, 0.75 / view.scale);
  context.stroke(shapes);
  context.strokeStyle = colors.accent;
  context.lineWidth = 2.5;
  context.stroke(best);
}

function paintText({ context, model, y, colors }, kind, id) {
  const left = model.depth[id] * CELL.width;
  const middle = y[id] * CELL.height + 0.5;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.font = `600 10.5px ${colors.font}`;
  const value = model.visits[id] ? shortNumber(model.mean[id]) : "";
  context.fillStyle = colors[kind];
  context.fillText(value, left + BOX.width - 7, middle);
  const valueWidth = context.measureText(value).width;
  context.textAlign = "left";
  context.fillText(MARKS[kind], left + 6, middle);
  context.font = `10.5px ${colors.font}`;
  context.fillStyle = colors.text;
  const room = BOX.width - 7 - valueWidth - 8 - 18;
  context.fillText(clipped(context, model.label[id], room), left + 18, middle);
  if (model.folded[id]) {
    context.fillStyle = colors.muted;
    context.fillText(`+${model.below[id]}`, left + BOX.width + 5, middle);
  }
}

/** Returns as much of a text as fits into a width, in a face whose characters are equally wide. */
function clipped(context, text, width) {
  const most = Math.floor(width / context.measureText("0").width);
  if (text.length <= most && context.measureText(text).width <= width) return text;
  let length = Math.max(0, Math.min(text.length, most - 1));
  while (length && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}

function paintSelection({ context, canvas, model, y, view, colors }) {
  const id = model.selected;
  if (Number.isNaN(y[id])) return;
  const gap = Math.max(3, 3 / view.scale);
  const left = model.depth[id] * CELL.width - gap;
  const top = y[id] * CELL.height - BOX.height / 2 - gap;
  context.beginPath();
  context.roundRect(left, top, BOX.width + 2 * gap, BOX.height + 2 * gap, 8);
  context.strokeStyle = colors.text;
  context.lineWidth = (document.activeElement === canvas ? 3 : 2) / Math.min(view.scale, 1);
  context.stroke();
}
