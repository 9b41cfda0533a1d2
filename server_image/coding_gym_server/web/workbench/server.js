// Requests to the server, with the token that the address of the page had.

const TOKEN_KEY = "coding-gym-token";
const ROOT = new URL("../../../", import.meta.url);

/** The server refuses a request for lack of the right token. */
export class TokenError extends Error {}

/** The server refuses a request, or cannot be reached. */
export class ServerError extends Error {}

/** Returns the address of a path of the server, also behind a proxy that serves it below a prefix. */
function addressOf(path) {
  return new URL(path.replace(/^\//, ""), ROOT);
}

function storedToken() {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return ""; // Storage is disabled: the token lives as long as the page.
  }
}

/** Takes the token from the fragment of the page's address, and removes it there; returns null if there is none. */
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** The server of the page. */
export class Server {
  constructor() {
    this.token = "";
    this.setToken(takeToken() ?? storedToken());
  }

  /** Uses a token for all later requests, until the tab is closed. */
  setToken(token) {
    this.token = token;
    try {
      sessionStorage.setItem(TOKEN_KEY, token);
    } catch {
      // Storage is disabled.
    }
  }

  /**
   * Sends a request, and returns a response of which the status is 2xx or 304.
   * @throws {TokenError} If the server wants another token.
   * @throws {ServerError} If it refuses, or cannot be reached.
   */
  async fetch(path, options = {}) {
    const headers = { ...options.headers };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    let response;
    try {
      response = await fetch(addressOf(path), { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError("The server cannot be reached.");
    }
    if (response.status === 401) throw new TokenError("The server requires a token.");
    if (!response.ok && response.status !== 304) throw new ServerError(await reasonOf(response));
    return response;
  }

  /** Opens a WebSocket. Browsers cannot send headers with it, so the token is a subprotocol. */
  openSocket(path) {
    const address = addressOf(path);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const subprotocols = ["coding-gym"];
    if (this.token) subprotocols.push(`coding-gym.bearer.${base64Url(this.token)}`);
    return new WebSocket(address, subprotocols);
  }
}

/** Returns what a response with an error says: text, or FastAPI's JSON. */
async function reasonOf(response) {
  const text = await response.text();
  let detail = text;
  try {
    ({ detail } = JSON.parse(text));
  } catch {
    // It is text.
  }
  if (Array.isArray(detail)) detail = detail.map((entry) => entry.msg).join("; ");
  if (typeof detail === "object" && detail !== null) detail = detail.message;
  return detail || `The server answered with status ${response.status}.`;
}

function base64Url(text) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
