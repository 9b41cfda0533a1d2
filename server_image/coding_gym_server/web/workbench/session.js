// A session of the server: requests and responses of its WebSocket `/ws`, in order.

/** The server refuses a request; `code` is the protocol's. */
export class RequestError extends Error {
  constructor({ message, code, errors }) {
    super(message);
    this.code = code;
    this.errors = errors ?? [];
  }
}

/** The connection ended, and with it the session. */
export class DisconnectedError extends Error {}

/** One connection, which is one session with its own interpreter, files and screen. */
export class Session {
  /**
   * @param {WebSocket} socket A connection to `/ws?announce=1`.
   * @param {object} options
   * @param {number} options.maxBytes Size in bytes of the longest message that the server reads.
   * @param {(reason: string) => void} options.onLost Called when the connection ends, unless `close` ended it.
   */
  constructor(socket, { maxBytes, onLost }) {
    this.id = null;
    this.socket = socket;
    this.maxBytes = maxBytes;
    this.pending = [];
    this.onLost = onLost;
    this.isClosed = false;
    this.opened = new Promise((resolve, reject) => {
      this.settleOpening = { resolve, reject };
    });
    socket.addEventListener("message", (event) => this.#receive(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => this.#end(event));
  }

  /** Whether a request waits for its response. */
  get isBusy() {
    return this.pending.length > 0;
  }

  /**
   * Sends a request, and returns the data of the response.
   * @param {object} message
   * @param {(output: {stdout?: string, stderr?: string}) => void} [onOutput] Called with the output of a running step.
   * @throws {RequestError} If the server refuses the request, or would for its size, and end the connection.
   * @throws {DisconnectedError} If the connection ends before the response.
   */
  request(message, onOutput = () => {}) {
    if (this.isClosed) return Promise.reject(new DisconnectedError("There is no connection to the server."));
    const text = JSON.stringify(message);
    const size = sizeOf(text, this.maxBytes);
    if (size > this.maxBytes) return Promise.reject(new RequestError(tooLarge(size, this.maxBytes)));
    return new Promise((resolve, reject) => {
      this.pending.push({ resolve, reject, onOutput });
      this.socket.send(text);
    });
  }

  reset(options) {
    return this.request({ type: "reset", data: options });
  }

  step(action, onOutput) {
    return this.request({ type: "step", data: action }, onOutput);
  }

  state() {
    return this.request({ type: "state" });
  }

  /** Interrupts the running step, which then returns. */
  interrupt() {
    if (!this.isClosed) this.socket.send(JSON.stringify({ type: "interrupt" }));
  }

  close() {
    this.isClosed = true;
    this.socket.close();
  }

  #receive({ type, data }) {
    if (type === "output") {
      this.pending[0]?.onOutput(data);
    } else if (this.id === null) {
      if (type === "session") {
        this.id = data.session;
        this.settleOpening.resolve(this);
      } else {
        this.isClosed = true;
        this.settleOpening.reject(new RequestError(data));
      }
    } else if (type === "error") {
      this.pending.shift()?.reject(new RequestError(data));
    } else {
      this.pending.shift()?.resolve(data);
    }
  }

  #end(event) {
    const wasClosed = this.isClosed;
    this.isClosed = true;
    const reason = event.reason || "The connection to the server was lost.";
    this.settleOpening.reject(new DisconnectedError(reason));
    for (const request of this.pending.splice(0)) request.reject(new DisconnectedError(reason));
    if (!wasClosed && this.id !== null) this.onLost(reason);
  }
}

/** Returns the size of a text in UTF-8, or less than the limit if that is certain. */
function sizeOf(text, limit) {
  return text.length * 3 <= limit ? text.length : new Blob([text]).size;
}

function tooLarge(size, limit) {
  const [found, most] = [size, limit].map((bytes) => bytes.toLocaleString("en"));
  return {
    code: "too_large",
    message: `The request has ${found} bytes, and the server reads ${most} at most. Use less code and fewer files; upload files on the tab “Files”.`,
  };
}
