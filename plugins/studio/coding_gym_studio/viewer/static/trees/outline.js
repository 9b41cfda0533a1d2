// The tree as a list of rows that keys walk: ARIA's pattern "tree view", of which only the visible rows are elements.

import { VirtualList } from "/static/common/virtual-list.js";
import { MARKS, shortNumber } from "./tree-model.js";

const INDENT = 12;
/** Deeper levels are not indented further: their depth is written in front of them. */
const DEEPEST_INDENT = 8;

export class Outline {
  /**
   * @param {HTMLElement} element The element with the role tree.
   * @param {import("./tree-model.js").TreeModel} model
   */
  constructor(element, model) {
    this.element = element;
    this.model = model;
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.list = new VirtualList(element, { rowHeight: Math.round(rem * 1.9), renderRow: (row) => this.#renderRow(row) });
    element.addEventListener("keydown", (event) => this.#onKey(event));
    element.addEventListener("click", (event) => this.#onClick(event));
    model.addEventListener("fold", () => this.#onFold());
    model.addEventListener("select", () => this.#onSelect());
    this.#onFold();
  }

  #onFold() {
    this.list.setCount(this.model.rows.length);
    this.#onSelect();
  }

  #onSelect() {
    const row = this.model.rowOf[this.model.selected];
    if (row < 0) return;
    // A row that is far away comes to the middle.
    const half = Math.floor(this.element.clientHeight / this.list.rowHeight / 2);
    if (!this.list.elementOf(row)) this.list.scrollTo(Math.min(row + half, this.model.rows.length - 1));
    this.list.scrollTo(row);
    for (const item of this.element.querySelectorAll("[aria-selected=true]")) item.setAttribute("aria-selected", "false");
    const item = this.list.elementOf(row);
    item?.setAttribute("aria-selected", "true");
    if (item) this.element.setAttribute("aria-activedescendant", item.id);
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.list.rowHeight) - 1);
    if (this.model.walk(event.key, page)) event.preventDefault();
  }

  #onClick(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const id = Number(item.dataset.id);
    if (event.target.closest(".twist") && this.model.children[id].length) this.model.toggle(id);
    else this.model.select(id);
  }

  #renderRow(row) {
    const { model } = this;
    const id = model.rows[row];
    const siblings = id ? model.children[model.parent[id]] : [0];
    const item = document.createElement("div");
    item.id = `node-${id}`;
    item.className = "row";
    item.dataset.id = id;
    const attributes = {
      role: "treeitem",
      "aria-level": model.depth[id] + 1,
      "aria-setsize": siblings.length,
      "aria-posinset": siblings.indexOf(id) + 1,
      "aria-selected": id === model.selected,
      "aria-label": model.describe(id),
    };
    for (const [name, value] of Object.entries(attributes)) item.setAttribute(name, value);
    if (model.children[id].length) item.setAttribute("aria-expanded", model.isOpen(id));
    item.classList.toggle("on-best-path", Boolean(model.onBestPath[id]));
    item.style.paddingInlineStart = `${Math.min(model.depth[id], DEEPEST_INDENT) * INDENT + 4}px`;
    const kind = model.kindOf(id);
    const twist = model.children[id].length ? (model.isOpen(id) ? "▾" : "▸") : "";
    item.append(part("twist", twist), part("mark", MARKS[kind]));
    item.querySelector(".mark").dataset.kind = kind;
    if (model.depth[id] > DEEPEST_INDENT) item.append(part("deep number", model.depth[id]));
    item.append(part("label", model.label[id]));
    if (model.folded[id]) item.append(part("count number", `+${model.below[id]}`));
    item.append(part("value number", model.visits[id] ? shortNumber(model.mean[id]) : ""), part("visits number", `${model.visits[id]}×`));
    return item;
  }
}

function part(className, text) {
  const element = document.createElement("span");
  element.className = className;
  element.textContent = text;
  return element;
}
