// The tree as a drawing on a canvas, of which only the visible part is drawn.

import { layOut } from "./layout.js";
import { paint, readColors, BOX, CELL } from "./painting.js";

const SMALLEST_SCALE = 0.002;
const LARGEST_SCALE = 2.5;
const ZOOM_STEP = 1.3;
const PAN_PIXELS = 60;
/** Movement in pixels up to which a press is a click. */
const CLICK_PIXELS = 4;
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
    this.pointers = new Map();
    this.frame = null;
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
    const width = this.width - 2 * MARGIN;
    const height = this.height - 2 * MARGIN;
    const scale = this.#clamp(Math.min(width / (right - left), height / (bottom - top), 1));
    this.view = {
      scale,
      x: (this.width - (left + right) * scale) / 2,
      y: (this.height - (top + bottom) * scale) / 2,
    };
    this.draw();
  }

  /** Zooms to a readable size around the selected node. */
  center() {
    const [x, y] = this.#position(this.model.selected);
    const scale = Math.max(this.view.scale, 1);
    this.view = { scale, x: this.width / 2 - (x + BOX.width / 2) * scale, y: this.height / 2 - y * scale };
    this.draw();
  }

  /** Moves the drawing as far as necessary for the selected node to be visible. */
  reveal() {
    const [x, y] = this.#position(this.model.selected);
    const { scale } = this.view;
    const left = x * scale + this.view.x;
    const top = (y - BOX.height / 2) * scale + this.view.y;
    this.view.x += overhang(left, left + BOX.width * scale, this.width);
    this.view.y += overhang(top, top + BOX.height * scale, this.height);
    this.draw();
  }

  /** Zooms by a factor around a point of the canvas, its middle by default. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = this.#clamp(this.view.scale * factor);
    const ratio = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio };
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
    const { scale } = this.view;
    const depth = Math.floor((x - this.view.x) / scale / CELL.width);
    const worldX = (x - this.view.x) / scale - depth * CELL.width;
    const worldY = (y - this.view.y) / scale;
    // Small boxes are as easy to hit as those of some pixels.
    const slack = Math.max(0, 5 / scale - BOX.height / 2);
    if (worldX < -slack || worldX > BOX.width + slack) return -1;
    let nearest = -1;
    let least = BOX.height / 2 + slack;
    for (const id of this.levels[depth] ?? []) {
      const gap = Math.abs(this.y[id] * CELL.height - worldY);
      if (gap <= least) {
        nearest = id;
        least = gap;
      }
    }
    return nearest;
  }

  get width() {
    return this.canvas.clientWidth;
  }

  get height() {
    return this.canvas.clientHeight;
  }

  #clamp(scale) {
    return Math.max(SMALLEST_SCALE, Math.min(scale, LARGEST_SCALE));
  }

  #position(id) {
    return [this.model.depth[id] * CELL.width, this.y[id] * CELL.height];
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
  }

  /** Lays out the tree anew, so that the selected node stays where it is. */
  #onFold() {
    const id = this.model.selected;
    const before = this.y[id] * CELL.height;
    this.#layOut();
    if (!Number.isNaN(before) && !Number.isNaN(this.y[id])) {
      this.view.y += (before - this.y[id] * CELL.height) * this.view.scale;
    }
    this.draw();
  }

  #resize() {
    if (!this.width || !this.height) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    if (!this.isPlaced) {
      this.isPlaced = true;
      this.#placeFirst();
    }
    this.#paint();
  }

  /** Shows the whole tree if it is readable then, and otherwise the selected node. */
  #placeFirst() {
    this.fit();
    if (this.view.scale < 0.5) {
      this.view.scale = 0.8;
      this.center();
    }
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
