// What the page does: connects, resets, runs code, and passes on what the mouse and the keyboard do on the screen.

import { Cell } from "./cell.js";
import { firstOptions } from "./reset-dialog.js";
import { DisconnectedError, RequestError, Session } from "./session.js";
import { TokenError } from "./server.js";

/** Seconds of drawing after which a program counts as animating, and runs on beside the page. */
const MAX_WATCH = 1;
const SETTLE = 0.05;
const FOLLOW_MILLISECONDS = 1500;
/** Time after which an interrupt can be repeated. */
const INTERRUPT_MILLISECONDS = 2000;
const MOST_CELLS = 300;

/** The session of the page, and its runs. */
export class Workbench {
  /**
   * @param {import("./server.js").Server} server
   * @param {object} handlers
   * @param {() => void} handlers.onChange Called when the page is to be rendered again.
   * @param {(session: Session | null) => void} handlers.onSession Called with each new session, and with null when it is lost.
   * @param {() => void} handlers.onStep Called after each step.
   * @param {(text: string) => void} handlers.announce
   * @param {(code: string) => void} handlers.onEdit Called with the code of a run that the user wants to change.
   */
  constructor(server, handlers) {
    this.server = server;
    this.handlers = handlers;
    /** One of: connecting, token, refused, lost, ready. */
    this.status = "connecting";
    this.reason = "";
    this.info = null;
    this.session = null;
    this.state = null;
    /** Options of the last reset, null before the first. */
    this.options = null;
    this.onIdle = "return";
    this.limit = null;
    this.connection = null;
    this.cells = [];
    this.count = 0;
    this.running = null;
    this.waiting = null;
    this.followTimer = null;
    this.continued = Promise.resolve();
    this.isInterrupting = false;
    this.interruptTimer = null;
    /** Whether the step of the run has been sent, and whether it is to be interrupted then. */
    this.isStepSent = false;
    this.isInterruptDue = false;
  }

  get backend() {
    return this.options?.backend ?? this.info?.interactive_backend ?? "";
  }

  get language() {
    return this.info?.backends.find(({ name }) => name === this.backend)?.language ?? "python";
  }

  /** Time limit of the next run in seconds. */
  get stepTimeout() {
    return this.limit ?? this.options?.step_timeout ?? this.info?.defaults.step_timeout ?? 30;
  }

  /** Connects, and begins an episode. */
  connect(token) {
    this.connection = this.#connect(token);
    return this.connection;
  }

  /** Connects with another token, unless there is a session, which shows that the server accepts the present one. */
  async useToken(token) {
    await this.connection;
    if (this.status !== "ready") await this.connect(token);
  }

  async #connect(token) {
    if (token !== undefined) this.server.setToken(token);
    this.#become("connecting");
    try {
      this.info = await (await this.server.fetch("/web/info")).json();
      const session = new Session(this.server.openSocket("/ws?announce=1"), {
        maxBytes: this.info.limits.max_message_bytes,
        onLost: (reason) => this.#lose(reason),
      });
      this.session = await session.opened;
      await this.reset(this.options ?? { ...firstOptions(), backend: this.info.interactive_backend }, this.onIdle);
      this.#become("ready");
    } catch (error) {
      this.#drop();
      this.options = null;
      if (error instanceof TokenError) this.#become("token", this.server.token ? "This token is not the server's." : "");
      else this.#become("refused", error.message);
    }
  }

  /** Begins a new episode in the session. */
  async reset(options, onIdle) {
    const { session } = this;
    if (!session) throw new DisconnectedError("There is no connection to the server. Close this dialog and reconnect.");
    // No screen and no files until there are new ones.
    this.handlers.onSession(null);
    try {
      await this.continued;
      clearTimeout(this.followTimer);
      await session.reset(options);
    } catch (error) {
      if (error instanceof RequestError) {
        this.handlers.onSession(session);
        this.#follow();
      }
      throw error;
    }
    this.options = options;
    this.onIdle = onIdle;
    this.limit = null;
    this.#stopFollowing("The reset ended the program.");
    this.handlers.onSession(session);
    await this.#readState();
    this.handlers.announce("The session was reset.");
  }

  /** Runs code as the next step. */
  async run(code) {
    if (this.running || this.status !== "ready" || !code.trim()) return;
    const { session } = this;
    const cell = new Cell({ number: ++this.count, code, language: this.language, limit: this.stepTimeout, onEdit: this.handlers.onEdit });
    this.running = cell;
    this.cells = [cell, ...this.cells].slice(0, MOST_CELLS);
    this.handlers.onChange();
    try {
      await this.continued;
      this.#stopFollowing("The next run ended the program, and has what it still printed.");
      const step = session.step({ ...this.#action(code), stream: true }, (output) => cell.addOutput(output));
      this.isStepSent = true;
      if (this.isInterruptDue) session.interrupt();
      const data = await step;
      this.#finish(cell, data, false);
      this.handlers.announce(`Run ${cell.number}: ${cell.badge.textContent}, ${cell.facts.textContent}`);
    } catch (error) {
      cell.fail(error.message);
      this.handlers.announce(`Run ${cell.number} failed: ${error.message}`);
    } finally {
      this.running = null;
      this.isStepSent = false;
      this.isInterruptDue = false;
      this.#showInterrupting(false);
      this.handlers.onChange();
    }
    await this.#afterStep();
  }

  /** Interrupts the run, or as soon as it begins: before it does, a program that continued may still be at its input. */
  interrupt() {
    if (this.isStepSent) this.session?.interrupt();
    else this.isInterruptDue = true;
    this.#showInterrupting(true);
    this.handlers.onChange();
  }

  /** Sends input events to the screen; while code runs, its own windows get none. */
  async sendInputs(events) {
    if (this.running || this.status !== "ready") return;
    await this.#continue({ inputs: events, settle_s: SETTLE });
  }

  /** Forgets the runs; the session continues. */
  clear() {
    this.cells = this.cells.filter((cell) => cell === this.running || cell === this.waiting);
    this.handlers.onChange();
  }

  #action(code) {
    return { code, timeout_s: this.stepTimeout, on_idle: this.onIdle, max_watch: MAX_WATCH };
  }

  /** Shows that the run is being interrupted, for a while: then the user can try again. */
  #showInterrupting(isInterrupting) {
    clearTimeout(this.interruptTimer);
    this.isInterrupting = isInterrupting;
    if (!isInterrupting) return;
    this.interruptTimer = setTimeout(() => {
      this.isInterrupting = false;
      this.handlers.onChange();
    }, INTERRUPT_MILLISECONDS);
  }

  /** Lets the program that waits for events continue, and takes its output; one call after the other. */
  #continue(action) {
    this.continued = this.continued.then(() => this.#goOn(action));
    return this.continued;
  }

  async #goOn(action) {
    clearTimeout(this.followTimer);
    const { waiting } = this;
    try {
      const data = await this.session.step({ ...this.#action(""), on_idle: "return", ...action });
      if (waiting) this.#finish(waiting, data, true);
      await this.#readState();
    } catch (error) {
      // The server refuses input without a screen, or the connection has ended, which is told elsewhere.
      if (error instanceof RequestError) this.handlers.announce(error.message);
    }
    this.#follow();
  }

  #finish(cell, data, isContinued) {
    cell.finish(data, { isContinued, showReward: this.options.rewards.length > 0 });
    this.waiting = cell.isWaiting ? cell : null;
  }

  async #afterStep() {
    this.handlers.onStep();
    await this.#readState();
    this.#follow();
  }

  /** Looks after a program that waits for events: what it prints, and whether it has ended. */
  #follow() {
    clearTimeout(this.followTimer);
    if (!this.waiting || this.running || this.status !== "ready") return;
    this.followTimer = setTimeout(() => {
      if (document.hidden || this.session.isBusy) this.#follow();
      else this.#continue({ settle_s: SETTLE, max_watch: SETTLE });
    }, FOLLOW_MILLISECONDS);
  }

  /** Stops looking after a program, which something else has ended. */
  #stopFollowing(reason) {
    clearTimeout(this.followTimer);
    this.waiting?.abandon(reason);
    this.waiting = null;
  }

  async #readState() {
    try {
      this.state = await this.session.state();
    } catch {
      return; // The connection has ended, which is told elsewhere.
    }
    this.handlers.onChange();
  }

  #lose(reason) {
    this.#drop();
    this.#become("lost", reason);
  }

  #drop() {
    this.#stopFollowing("The program ended with the connection.");
    this.session?.close();
    this.session = null;
    this.state = null;
    this.handlers.onSession(null);
  }

  #become(status, reason = "") {
    this.status = status;
    this.reason = reason;
    this.handlers.onChange();
  }
}
