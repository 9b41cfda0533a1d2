// The session's screen: its picture, a few times a second, and the mouse and the keyboard through it.

import { inputOfKey } from "./keys.js";

const FASTEST = 80;
const SLOWEST = 1500;
const SLOWDOWN = 1.4;
const BUTTONS = ["left", "middle", "right"];
const WHEEL_PIXELS = 100;
const WHEEL_LINES = 3;
const MOST_CLICKS = 20;

/** A live screen. */
export class LiveScreen {
  /**
   * @param {import("./server.js").Server} server
   * @param {object} handlers
   * @param {(events: object[]) => Promise<void>} handlers.sendInputs Sends input events; resolves when they have had an effect.
   * @param {(state: object) => void} handlers.onChange Called when `state` has changed.
   */
  constructor(server, { sendInputs, onChange }) {
    this.server = server;
    this.sendInputs = sendInputs;
    this.onChange = onChange;
    this.session = null;
    this.etag = null;
    this.delay = FASTEST;
    this.timer = null;
    this.abort = null;
    this.state = { kind: "none", windows: 0, width: 0, height: 0, reason: "" };
    this.queue = [];
    this.isSending = false;
    this.wheel = { x: 0, y: 0 };
    this.mayLeave = false;
    this.isVisible = false;
    this.canvas = document.createElement("canvas");
    this.canvas.className = "screen-picture";
    this.#resize(800, 600);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Screen of the session. Keys go to its programs; press Ctrl and Alt together to leave.");
    this.#listen();
    new IntersectionObserver((entries) => {
      this.isVisible = entries.at(-1).isIntersecting;
      this.wake();
    }).observe(this.canvas);
    document.addEventListener("visibilitychange", () => this.wake());
  }

  /** Shows the screen of a session, or none. */
  show(session) {
    this.abort?.abort();
    this.session = session;
    this.etag = null;
    this.queue.length = 0;
    this.#update({ kind: session ? "waiting" : "none", windows: 0, reason: "" });
    this.canvas.getContext("2d").clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.wake();
  }

  /** Looks at the screen soon, and often for a while. */
  wake() {
    this.delay = FASTEST;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#poll(), 0);
  }

  /** Types text, as if it came from the keyboard. */
  type(text) {
    this.#push({ type: "text", text });
  }

  #update(changes) {
    const changed = Object.entries(changes).some(([name, value]) => this.state[name] !== value);
    Object.assign(this.state, changes);
    if (changed) this.onChange(this.state);
  }

  async #poll() {
    clearTimeout(this.timer);
    const { session } = this;
    if (!session || document.hidden || !this.isVisible || this.isPolling) return;
    this.isPolling = true;
    try {
      await this.#load(session);
    } finally {
      this.isPolling = false;
    }
    if (session !== this.session) this.wake();
    else if (this.state.kind !== "unavailable") this.timer = setTimeout(() => this.#poll(), this.delay);
  }

  async #load(session) {
    let response;
    try {
      const headers = this.etag ? { "if-none-match": this.etag } : {};
      this.abort = new AbortController();
      const options = { headers, cache: "no-store", signal: this.abort.signal };
      response = await this.server.fetch(`/sessions/${session.id}/screen`, options);
    } catch (error) {
      if (error.name !== "AbortError" && session === this.session) this.#update({ kind: "unavailable", reason: error.message });
      return;
    }
    if (session !== this.session) return;
    const windows = Number(response.headers.get("coding-gym-windows") ?? 0);
    if (response.status === 304) {
      this.delay = Math.min(this.delay * SLOWDOWN, SLOWEST);
      this.#update({ kind: "live", windows });
      return;
    }
    const picture = await createImageBitmap(await response.blob());
    if (session !== this.session) return;
    this.delay = FASTEST;
    this.etag = response.headers.get("etag");
    this.#resize(picture.width, picture.height);
    this.canvas.getContext("2d").drawImage(picture, 0, 0);
    picture.close();
    this.#update({ kind: "live", windows, width: this.canvas.width, height: this.canvas.height });
  }

  #resize(width, height) {
    if (this.canvas.width === width && this.canvas.height === height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.canvas.style.setProperty("--ratio", width / height);
    this.canvas.style.setProperty("--pixels", width);
  }

  #push(...events) {
    for (const event of events) {
      // Of moves that have not been sent, the last one counts.
      if (event.type === "move" && this.queue.at(-1)?.type === "move") this.queue.pop();
      this.queue.push(event);
    }
    this.#send();
  }

  async #send() {
    if (this.isSending || !this.session) return;
    this.isSending = true;
    try {
      while (this.queue.length > 0) {
        await this.sendInputs(this.queue.splice(0));
        this.wake();
      }
    } finally {
      this.isSending = false;
    }
  }

  /** Returns the pixel of the screen below the pointer. */
  #position(event) {
    const box = this.canvas.getBoundingClientRect();
    const clamp = (value, size) => Math.min(Math.max(Math.floor(value), 0), size - 1);
    return {
      x: clamp(((event.clientX - box.left) / box.width) * this.canvas.width, this.canvas.width),
      y: clamp(((event.clientY - box.top) / box.height) * this.canvas.height, this.canvas.height),
    };
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.focus({ preventScroll: true });
      if (event.button > 2) return;
      canvas.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.#push({ type: "move", ...this.#position(event) }, { type: "mouse_down", button: BUTTONS[event.button] });
    });
    canvas.addEventListener("pointermove", (event) => this.#push({ type: "move", ...this.#position(event) }));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        if (event.button > 2) return;
        const button = BUTTONS[Math.max(event.button, 0)];
        this.#push({ type: "move", ...this.#position(event) }, { type: "mouse_up", button });
      });
    }
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => this.#onWheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#onKeyDown(event));
    canvas.addEventListener("keyup", (event) => this.#onKeyUp(event));
  }

  #onWheel(event) {
    // Without the focus, the wheel scrolls the page.
    if (document.activeElement !== this.canvas || event.ctrlKey) return;
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? WHEEL_PIXELS : WHEEL_LINES;
    this.wheel.x += event.deltaX / unit;
    this.wheel.y += event.deltaY / unit;
    const clicks = (delta) => Math.max(-MOST_CLICKS, Math.min(MOST_CLICKS, Math.trunc(delta)));
    const [dx, dy] = [clicks(this.wheel.x), clicks(this.wheel.y)];
    if (dx === 0 && dy === 0) return;
    this.wheel.x -= dx;
    this.wheel.y -= dy;
    this.#push({ type: "scroll", ...this.#position(event), dx, dy });
  }

  #onKeyDown(event) {
    const isModifier = ["Alt", "Control", "Shift", "Meta", "AltGraph", "CapsLock"].includes(event.key);
    this.mayLeave = isModifier && event.ctrlKey && event.altKey && event.key !== "AltGraph";
    if (isModifier) return;
    const input = inputOfKey(event);
    if (input === null) return;
    event.preventDefault();
    this.#push(input);
  }

  #onKeyUp(event) {
    if (this.mayLeave && ["Alt", "Control"].includes(event.key)) {
      event.preventDefault();
      this.canvas.dispatchEvent(new CustomEvent("leave", { bubbles: true }));
    }
    this.mayLeave = false;
  }
}
