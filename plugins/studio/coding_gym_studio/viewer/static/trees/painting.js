// Painting of the visible part of a tree: edges as wide as their visits, and nodes in the colors of their outcomes.

import { MARKS, shortNumber } from "./tree-model.js";

/** Size of a node's box, in pixels at scale 1. */
export const BOX = { width: 188, height: 27 };

/** Distance of nodes: between levels, and between siblings. */
export const CELL = { width: 250, height: 35 };

/** Scale from which boxes have rounded outlines. */
const SHAPE_SCALE = 0.16;

/** Size of text at scale 1, the smallest that is drawn, and the narrowest box with text. */
const TEXT_PIXELS = 11;
const SMALLEST_TEXT = 8;
const NARROWEST = 64;

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

/** Returns whether boxes are large enough for text. @param {import("./drawing.js").TreeDrawing} drawing */
export function isReadable({ scaleX, scaleY }) {
  return TEXT_PIXELS * scaleY >= SMALLEST_TEXT && BOX.width * scaleX >= NARROWEST;
}

/** Paints a drawing. @param {import("./drawing.js").TreeDrawing} drawing */
export function paint(drawing) {
  const { context, canvas, width, height, scaleX, scaleY } = drawing;
  const ratio = canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const scale = Math.min(scaleX, scaleY);
  paintEdges(drawing, scale);
  paintNodes(drawing, scale);
}

function paintEdges(drawing, scale) {
  const { context, model, width, height, colors } = drawing;
  const paths = new Map();
  const most = Math.sqrt(Math.max(1, model.visits[0]));
  for (const id of model.rows) {
    if (!id) continue;
    const from = drawing.boxOf(model.parent[id]);
    const to = drawing.boxOf(id);
    const startX = from.left + from.width;
    const startY = from.top + from.height / 2;
    const endY = to.top + to.height / 2;
    if (startX > width || to.left < 0) continue;
    if (Math.max(startY, endY) < 0 || Math.min(startY, endY) > height) continue;
    const step = Math.ceil((Math.sqrt(model.visits[id]) / most) * WIDTHS);
    const key = model.onBestPath[id] ? WIDTHS + 1 + step : step;
    if (!paths.has(key)) paths.set(key, new Path2D());
    const path = paths.get(key);
    path.moveTo(startX, startY);
    const middle = (startX + to.left) / 2;
    if (scale < SHAPE_SCALE) path.lineTo(to.left, endY);
    else path.bezierCurveTo(middle, startY, middle, endY, to.left, endY);
  }
  // Those of the best path last, on top of the others.
  for (const [key, path] of [...paths].sort(([one], [other]) => one - other)) {
    const isBest = key > WIDTHS;
    const step = isBest ? key - WIDTHS - 1 : key;
    context.strokeStyle = isBest ? colors.accent : colors.line;
    context.globalAlpha = isBest ? 1 : 0.55;
    context.lineWidth = Math.max((1 + ((WIDEST - 1) * step) / WIDTHS) * scale, isBest ? 2 : 0.7);
    context.stroke(path);
  }
  context.globalAlpha = 1;
}

function paintNodes(drawing, scale) {
  const { model, width, height } = drawing;
  const visible = Object.fromEntries(KINDS.map((kind) => [kind, []]));
  for (const id of model.rows) {
    const box = drawing.boxOf(id);
    // What is written beside folded nodes may be visible, too.
    if (box.left > width || box.left + box.width * 2 < 0 || box.top > height || box.top + box.height < 0) continue;
    visible[model.kindOf(id)].push({ id, box });
  }
  for (const kind of KINDS) paintBoxes(drawing, scale, kind, visible[kind]);
  if (isReadable(drawing)) for (const kind of KINDS) for (const each of visible[kind]) paintText(drawing, kind, each);
  paintSelection(drawing);
}

function paintBoxes({ context, model, colors }, scale, kind, nodes) {
  const shapes = new Path2D();
  const best = new Path2D();
  const isSmall = scale < SHAPE_SCALE;
  for (const { id, box } of nodes) {
    if (isSmall) {
      shapes.rect(box.left, box.top, Math.max(box.width, 1.5), Math.max(box.height * 0.8, 1));
      continue;
    }
    const path = model.onBestPath[id] ? best : shapes;
    path.roundRect(box.left, box.top, box.width, box.height, 6 * scale);
  }
  context.fillStyle = isSmall ? colors[kind] : colors[`${kind}-soft`];
  context.fill(shapes);
  context.fill(best);
  if (isSmall) return;
  context.strokeStyle = colors[kind];
  context.lineWidth = Math.max(scale, 0.75);
  context.stroke(shapes);
  context.strokeStyle = colors.accent;
  context.lineWidth = Math.max(2.5 * scale, 1.5);
  context.stroke(best);
}

function paintText({ context, model, colors, scaleY: scale }, kind, { id, box }) {
  const middle = box.top + box.height / 2 + 0.5;
  const edge = 7 * scale;
  const start = box.left + 20 * scale;
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.font = `600 ${TEXT_PIXELS * scale}px ${colors.font}`;
  const value = model.visits[id] ? shortNumber(model.mean[id]) : "";
  context.fillStyle = colors[kind];
  context.fillText(value, box.left + box.width - edge, middle);
  const end = box.left + box.width - 2 * edge - context.measureText(value).width;
  context.textAlign = "left";
  context.fillText(MARKS[kind], box.left + edge, middle);
  context.font = `${TEXT_PIXELS * scale}px ${colors.font}`;
  context.fillStyle = colors.text;
  context.fillText(clipped(context, model.label[id], end - start), start, middle);
  if (model.folded[id]) {
    context.fillStyle = colors.muted;
    context.fillText(`+${model.below[id]}`, box.left + box.width + edge, middle);
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

function paintSelection(drawing) {
  const { context, canvas, model, y, colors } = drawing;
  const id = model.selected;
  if (Number.isNaN(y[id])) return;
  const { left, top, width, height } = drawing.boxOf(id);
  const gap = 4;
  context.beginPath();
  context.roundRect(left - gap, top - gap, width + 2 * gap, height + 2 * gap, 8);
  context.strokeStyle = colors.text;
  context.lineWidth = document.activeElement === canvas ? 3 : 2;
  context.stroke();
}
