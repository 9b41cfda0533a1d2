// The tree as a drawing on a canvas, of which only the visible part is drawn.

import { layOut } from "./layout.js";
import { isReadable, paint, readColors, BOX, CELL } from "./painting.js";

const LARGEST_SCALE = 3;
const ZOOM_STEP = 1.3;
const PAN_PIXELS = 60;
/** Movement in pixels up to which a press is a click. */
const CLICK_PIXELS = 4;
const SMALLEST_TARGET = 8;
const MARGIN = 24;

export class TreeDrawing {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./tree-model.js").TreeModel} model
   */
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.context = canvas.getContext("2d");
    this.view = { scale: 1, x: 0, y: 0 };
    // Text of the drawing grows with that of the page.
    this.natural = parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;
    this.pointers = new Map();
    this.frame = null;
    // Read once: the browser lays out the page anew for each time.
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    this.isPlaced = false;
    this.colors = readColors(canvas);
    this.#layOut();
    new ResizeObserver(() => this.#resize()).observe(canvas);
    model.addEventListener("fold", () => this.#onFold());
    model.addEventListener("select", () => this.reveal());
    canvas.addEventListener("wheel", (event) => this.#onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#onPress(event));
    canvas.addEventListener("pointermove", (event) => this.#onMove(event));
    canvas.addEventListener("pointerup", (event) => this.#onRelease(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("dblclick", (event) => this.#onDoubleClick(event));
    canvas.addEventListener("keydown", (event) => this.#onKey(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
  }

  /** Draws the tree anew in the colors of the present theme. */
  recolor() {
    this.colors = readColors(this.canvas);
    this.draw();
  }

  /** Draws the tree before the next frame. */
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.#paint();
    });
  }

  /** Shows the whole tree. */
  fit() {
    const { left, top, right, bottom } = this.bounds;
    this.view.scale = Math.min(...this.floors);
    this.view.x = (this.width - (left + right) * this.scaleX) / 2;
    this.view.y = (this.height - (top + bottom) * this.scaleY) / 2;
    this.draw();
  }

  /** Zooms to a readable size around the selected node, at least to the given scale. */
  center(least = this.natural) {
    this.view.scale = Math.max(this.view.scale, least);
    const box = this.boxOf(this.model.selected);
    this.view.x += this.width / 2 - box.left - box.width / 2;
    this.view.y += this.height / 2 - box.top - box.height / 2;
    this.draw();
  }

  /** Moves the drawing as far as necessary for the selected node to be visible. */
  reveal() {
    const box = this.boxOf(this.model.selected);
    this.view.x += overhang(box.left, box.left + box.width, this.width);
    this.view.y += overhang(box.top, box.top + box.height, this.height);
    this.draw();
  }

  /** Zooms by a factor around a point of the canvas, its middle by default. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const { scaleX, scaleY } = this;
    this.view.scale = Math.max(Math.min(...this.floors), Math.min(this.view.scale * factor, LARGEST_SCALE));
    this.view.x = x - ((x - this.view.x) * this.scaleX) / scaleX;
    this.view.y = y - ((y - this.view.y) * this.scaleY) / scaleY;
    this.draw();
  }

  zoomIn() {
    this.zoom(ZOOM_STEP);
  }

  zoomOut() {
    this.zoom(1 / ZOOM_STEP);
  }

  /** Returns the id of the node at a point of the canvas, -1 if there is none. */
  nodeAt(x, y) {
    const depth = Math.floor((x - this.view.x) / (CELL.width * this.scaleX));
    let nearest = -1;
    let least = Infinity;
    for (const id of this.levels[depth] ?? []) {
      const box = this.boxOf(id);
      // Small boxes are as easy to hit as those of some pixels.
      const gap = Math.abs(box.top + box.height / 2 - y);
      if (x <= box.left + Math.max(box.width, SMALLEST_TARGET) && gap <= Math.max(box.height, SMALLEST_TARGET) / 2 && gap < least) {
        nearest = id;
        least = gap;
      }
    }
    return nearest;
  }

  /** Returns the place of a node's box on the canvas. */
  boxOf(id) {
    const { scaleX, scaleY } = this;
    return {
      left: this.model.depth[id] * CELL.width * scaleX + this.view.x,
      top: (this.y[id] * CELL.height - BOX.height / 2) * scaleY + this.view.y,
      width: BOX.width * scaleX,
      height: BOX.height * scaleY,
    };
  }

  /** Horizontal scale. Neither scale falls below that at which the tree fits: a tall tree keeps its width when it is small. */
  get scaleX() {
    return Math.max(this.view.scale, this.floors[0]);
  }

  /** Vertical scale. */
  get scaleY() {
    return Math.max(this.view.scale, this.floors[1]);
  }

  /** Computes the horizontal and the vertical scale at which the whole tree fits, at most the natural one. */
  #findFloors() {
    const { left, top, right, bottom } = this.bounds;
    const scaleX = Math.max(1, this.width - 2 * MARGIN) / (right - left);
    const scaleY = Math.max(1, this.height - 2 * MARGIN) / (bottom - top);
    this.floors = [Math.min(scaleX, this.natural), Math.min(scaleY, this.natural)];
  }

  #layOut() {
    const { model } = this;
    this.y = layOut(model);
    this.levels = [];
    let top = 0;
    let bottom = 0;
    for (const id of model.rows) {
      (this.levels[model.depth[id]] ??= []).push(id);
      top = Math.min(top, this.y[id]);
      bottom = Math.max(bottom, this.y[id]);
    }
    this.bounds = {
      left: 0,
      right: (this.levels.length - 1) * CELL.width + BOX.width,
      top: top * CELL.height - BOX.height / 2,
      bottom: bottom * CELL.height + BOX.height / 2,
    };
    this.#findFloors();
  }

  /** Lays out the tree anew, so that the selected node stays where it is. */
  #onFold() {
    const id = this.model.selected;
    const before = Number.isNaN(this.y[id]) ? null : this.boxOf(id);
    this.#layOut();
    if (before && !Number.isNaN(this.y[id])) {
      const after = this.boxOf(id);
      this.view.x += before.left - after.left;
      this.view.y += before.top - after.top;
    }
    this.draw();
  }

  #resize() {
    if (!this.canvas.clientWidth || !this.canvas.clientHeight) return;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.#findFloors();
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    if (!this.isPlaced) {
      this.isPlaced = true;
      this.#placeFirst();
    }
    this.#paint();
  }

  /** Shows the whole tree if it is readable then, and otherwise the selected node with what leads to it. */
  #placeFirst() {
    this.fit();
    if (isReadable(this)) return;
    this.center(this.natural * 0.75);
    const { left, width } = this.boxOf(this.model.selected);
    const isWhole = (this.bounds.right - this.bounds.left) * this.scaleX <= this.width - 2 * MARGIN;
    if (isWhole) this.view.x = MARGIN;
    else this.view.x += Math.max(0, this.width * 0.85 - left - width);
  }

  #paint() {
    if (this.isPlaced) paint(this);
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #onWheel(event) {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    this.zoom(Math.exp(-event.deltaY * lines * 0.0015), ...this.#point(event));
  }

  #onPress(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { at: this.#point(event), from: this.#point(event) });
  }

  #onMove(event) {
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) {
      this.canvas.style.cursor = this.nodeAt(...this.#point(event)) < 0 ? "grab" : "pointer";
      return;
    }
    const [x, y] = this.#point(event);
    const [beforeX, beforeY] = pointer.at;
    const other = [...this.pointers.values()].find((each) => each !== pointer);
    pointer.at = [x, y];
    if (other) {
      // Two fingers: zoom by the ratio of their distances.
      const before = Math.hypot(beforeX - other.at[0], beforeY - other.at[1]);
      const after = Math.hypot(x - other.at[0], y - other.at[1]);
      pointer.from = [NaN, NaN];
      other.from = [NaN, NaN];
      if (before && after) this.zoom(after / before, (x + other.at[0]) / 2, (y + other.at[1]) / 2);
    }
    const share = other ? 0.5 : 1;
    this.view.x += (x - beforeX) * share;
    this.view.y += (y - beforeY) * share;
    this.draw();
  }

  #onRelease(event) {
    const pointer = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!pointer) return;
    const moved = Math.hypot(pointer.at[0] - pointer.from[0], pointer.at[1] - pointer.from[1]);
    if (!(moved <= CLICK_PIXELS)) return;
    const id = this.nodeAt(...pointer.at);
    if (id >= 0) this.model.select(id);
  }

  #onDoubleClick(event) {
    const id = this.nodeAt(...this.#point(event));
    if (id >= 0) this.model.toggle(id);
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pan = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.shiftKey && pan) {
      this.view.x += pan[0] * PAN_PIXELS;
      this.view.y += pan[1] * PAN_PIXELS;
      this.draw();
    } else if (event.key === "+" || event.key === "=") {
      this.zoomIn();
    } else if (event.key === "-") {
      this.zoomOut();
    } else if (event.key === "0") {
      this.fit();
    } else if (!this.model.walk(event.key)) {
      return;
    }
    event.preventDefault();
  }
}

/** Returns how far a range must move to lie within a length. */
function overhang(start, end, length) {
  if (start < MARGIN) return MARGIN - start;
  return end > length - MARGIN ? Math.max(length - MARGIN - end, MARGIN - start) : 0;
}
