// A list of which only the visible rows are elements, so that its length does not matter.

/** Browsers clamp the height of elements at some 16 to 33 million pixels. */
const TALLEST = 12_000_000;

/** Rows of one height in a scrolling element. */
export class VirtualList {
  /**
   * @param {HTMLElement} viewport The scrolling element, whose height its style determines. Its content is replaced.
   * @param {object} options
   * @param {number} options.rowHeight Height of a row in pixels.
   * @param {(index: number) => HTMLElement} options.renderRow Returns the element of a row.
   * @param {number} [options.overscan] Rows that are rendered above and below the visible ones.
   */
  constructor(viewport, { rowHeight, renderRow, overscan = 8 }) {
    this.viewport = viewport;
    this.rowHeight = rowHeight;
    this.renderRow = renderRow;
    this.overscan = overscan;
    this.count = 0;
    this.rows = new Map();
    this.frame = null;
    this.space = document.createElement("div");
    this.space.style.position = "relative";
    viewport.replaceChildren(this.space);
    viewport.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.observer = new ResizeObserver(() => this.#schedule());
    this.observer.observe(viewport);
  }

  /** Sets the number of rows, and renders the visible ones anew. */
  setCount(count) {
    this.count = count;
    this.space.style.height = `${Math.min(count * this.rowHeight, TALLEST)}px`;
    this.refresh();
  }

  /** Renders the visible rows anew. */
  refresh() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.#render();
  }

  /** Scrolls as far as necessary for a row to be visible. */
  scrollTo(index) {
    const first = this.#firstVisible();
    const visible = Math.max(1, Math.floor(this.viewport.clientHeight / this.rowHeight));
    if (index < first) this.#scrollToFirst(index);
    else if (index >= first + visible) this.#scrollToFirst(index - visible + 1);
    this.#render();
  }

  /** Returns the element of a row if it is rendered. */
  elementOf(index) {
    return this.rows.get(index) ?? null;
  }

  /** Stops observing the viewport. */
  close() {
    this.observer.disconnect();
    if (this.frame !== null) cancelAnimationFrame(this.frame);
  }

  /** Rows per pixel of scrolling: one row per its height, or more if the whole list would be too tall. */
  get #scale() {
    const tall = this.count * this.rowHeight;
    const visible = this.viewport.clientHeight;
    return tall <= TALLEST ? 1 : (tall - visible) / (TALLEST - visible);
  }

  #firstVisible() {
    return Math.floor((this.viewport.scrollTop * this.#scale) / this.rowHeight);
  }

  #scrollToFirst(index) {
    this.viewport.scrollTop = (index * this.rowHeight) / this.#scale;
  }

  #schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.#render();
    });
  }

  #render() {
    const offset = this.viewport.scrollTop * this.#scale;
    const first = Math.max(0, Math.floor(offset / this.rowHeight) - this.overscan);
    const last = Math.min(this.count, Math.ceil((offset + this.viewport.clientHeight) / this.rowHeight) + this.overscan);
    for (const [index, row] of this.rows) {
      // The row with the focus stays, so that keys keep working.
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      let row = this.rows.get(index);
      if (!row) {
        row = this.renderRow(index);
        row.style.position = "absolute";
        row.style.insetInline = "0";
        row.style.height = `${this.rowHeight}px`;
        this.rows.set(index, row);
        this.#insert(index, row);
      }
      row.style.transform = `translateY(${index * this.rowHeight - offset + this.viewport.scrollTop}px)`;
    }
  }

  /** Inserts a row in the order of the indices, which is the order that assistive technology reads. */
  #insert(index, row) {
    let before = null;
    let nearest = Infinity;
    for (const [other, element] of this.rows) {
      if (other > index && other < nearest && element.parentNode === this.space) {
        nearest = other;
        before = element;
      }
    }
    this.space.insertBefore(row, before);
  }
}
