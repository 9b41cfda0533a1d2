// The grid of sessions: only the visible tiles are elements, so that thousands cost no more than a screenful.

const OVERSCAN_ROWS = 2;

export class Grid {
  /**
   * @param {HTMLElement} root The listbox. It scrolls with the page.
   * @param {object} options
   * @param {() => HTMLElement} options.create Returns a new tile.
   * @param {(tile: HTMLElement, item: object) => void} options.fill Shows an item in a tile.
   * @param {(item: object) => void} options.onOpen Called when an item is opened.
   * @param {() => void} options.onLeave Called at Escape.
   */
  constructor(root, { create, fill, onOpen, onLeave }) {
    this.root = root;
    this.create = create;
    this.fill = fill;
    this.onOpen = onOpen;
    this.items = [];
    this.active = null;
    this.opened = null;
    this.size = { width: 16, height: 10, gap: 0.75 };
    this.tiles = new Map();
    this.spare = [];
    this.frame = null;
    addEventListener("scroll", () => this.#schedule(), { passive: true });
    new ResizeObserver(() => this.#schedule()).observe(root);
    addEventListener("resize", () => this.#schedule());
    root.addEventListener("keydown", (event) => this.#onKey(event, onLeave));
    root.addEventListener("focus", () => {
      if (!this.#activeItem && this.items.length) this.#activate(this.#firstVisible());
      this.render();
    });
    root.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (!tile) return;
      this.active = tile.dataset.key;
      this.#open();
    });
  }

  /** Sets the size of the tiles in rem: the smallest width, the height, and the gap between them. */
  setSize(size) {
    this.size = size;
  }

  /** Shows items, each with a ``key``. */
  show(items) {
    this.items = items;
    this.render();
  }

  /** The visible items. */
  get visible() {
    return [...this.tiles.values()].map((tile) => tile.item);
  }

  /** Opens no item. */
  leave() {
    this.opened = null;
    this.render();
  }

  render() {
    const layout = this.#layout();
    const rows = Math.ceil(this.items.length / layout.columns);
    this.root.style.height = `${Math.max(rows * layout.pitch - layout.gap, 0)}px`;
    const top = -this.root.getBoundingClientRect().top;
    const first = Math.max(Math.floor(top / layout.pitch) - OVERSCAN_ROWS, 0) * layout.columns;
    const last = Math.min((Math.ceil((top + innerHeight) / layout.pitch) + OVERSCAN_ROWS) * layout.columns, this.items.length);
    const shown = new Set();
    for (let at = first; at < last; at++) shown.add(this.items[at].key);
    const at = this.items.findIndex((item) => item.key === this.active);
    // Assistive technology needs the element of the active item.
    if (at >= 0) shown.add(this.active);
    for (const [key, tile] of this.tiles) {
      if (shown.has(key)) continue;
      tile.element.remove();
      this.tiles.delete(key);
      this.spare.push(tile.element);
    }
    for (let position = first; position < last; position++) this.#place(position, layout);
    if (at >= 0 && (at < first || at >= last)) this.#place(at, layout);
    if (at >= 0) this.root.setAttribute("aria-activedescendant", `tile-${this.active}`);
    else this.root.removeAttribute("aria-activedescendant");
    this.spare.length = Math.min(this.spare.length, 64);
  }

  #place(position, layout) {
    const item = this.items[position];
    let tile = this.tiles.get(item.key);
    if (!tile) {
      tile = { element: this.spare.pop() ?? this.create(), item: null };
      tile.element.id = `tile-${item.key}`;
      tile.element.dataset.key = item.key;
      this.tiles.set(item.key, tile);
      this.root.append(tile.element);
    }
    tile.item = item;
    const { element } = tile;
    element.style.width = `${layout.width}px`;
    element.style.height = `${layout.height}px`;
    const x = (position % layout.columns) * (layout.width + layout.gap);
    element.style.transform = `translate(${x}px, ${Math.floor(position / layout.columns) * layout.pitch}px)`;
    element.setAttribute("aria-posinset", position + 1);
    element.setAttribute("aria-setsize", this.items.length);
    element.setAttribute("aria-selected", item.key === this.opened);
    element.classList.toggle("active", item.key === this.active);
    this.fill(element, item);
  }

  #layout() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const gap = this.size.gap * rem;
    const available = this.root.clientWidth;
    const columns = Math.max(Math.floor((available + gap) / (this.size.width * rem + gap)), 1);
    // A few tiles are wider than many.
    const used = Math.min(columns, Math.max(this.items.length, 1));
    const width = Math.floor(Math.min((available - gap * (used - 1)) / used, Math.max(this.size.width * rem * 1.6, (available - gap * (columns - 1)) / columns)));
    const height = Math.round(this.size.height * rem);
    return { gap, columns, width, height, pitch: height + gap };
  }

  get #activeItem() {
    return this.items.find((item) => item.key === this.active) ?? null;
  }

  #firstVisible() {
    const { columns, pitch } = this.#layout();
    const top = Math.max(-this.root.getBoundingClientRect().top, 0);
    return Math.min(Math.ceil(top / pitch) * columns, this.items.length - 1);
  }

  #activate(position) {
    this.active = this.items[Math.max(0, Math.min(position, this.items.length - 1))].key;
    this.render();
    this.tiles.get(this.active)?.element.scrollIntoView({ block: "nearest" });
    if (this.opened !== null) this.#open();
  }

  #open() {
    const item = this.#activeItem;
    if (!item) return;
    this.opened = item.key;
    this.render();
    this.onOpen(item);
  }

  #onKey(event, onLeave) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.items.length) return;
    const { columns, pitch } = this.#layout();
    const page = Math.max(Math.floor(innerHeight / pitch) - 1, 1) * columns;
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page };
    const at = this.items.findIndex((item) => item.key === this.active);
    if (event.key in moves) {
      const target = at < 0 ? this.#firstVisible() : at + moves[event.key];
      const isVertical = Math.abs(moves[event.key]) > 1;
      // Up and down keep the column.
      if (!isVertical || event.key.startsWith("Page") || (target >= 0 && target < this.items.length)) this.#activate(target);
    } else if (event.key === "Home") this.#activate(0);
    else if (event.key === "End") this.#activate(this.items.length - 1);
    else if (event.key === "Enter" || event.key === " ") this.#open();
    else if (event.key === "Escape") onLeave();
    else return;
    event.preventDefault();
  }

  #schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.render();
    });
  }
}
