// Requests to the server, with the token that the printed address has in its fragment.

const KEY = "coding-gym-token";

/** An answer other than the requested data. */
export class RequestError extends Error {
  /**
   * @param {string} message
   * @param {number} status HTTP status, 0 if the server did not answer.
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Moves the token from the fragment into the session, and leaves a fragment with the route only. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (!token) return;
  sessionStorage.setItem(KEY, token);
  history.replaceState(null, "", `#${given.get("route") ?? "/"}`);
}

/** Keeps a token, which may be pasted as part of an address. */
export function setToken(text) {
  sessionStorage.setItem(KEY, /token=([^&\s]+)/.exec(text)?.[1] ?? text.trim());
}

async function request(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` }, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server does not answer: it was stopped, or the connection is lost.", 0);
  }
  if (!answer.ok) {
    const text = await answer.text();
    let detail = text;
    try {
      detail = JSON.parse(text).detail ?? text;
    } catch {
      // A plain text, as Starlette answers.
    }
    throw new RequestError(detail || answer.statusText, answer.status);
  }
  return answer;
}

/** Returns the decoded JSON of a path. */
export async function getJson(path, signal) {
  return (await request(path, signal)).json();
}

const MOST_PICTURES = 120;
const pictures = new Map();

/** Returns an address of a picture that an img element can show without the token. The last ones are kept. */
export async function getPicture(path) {
  const known = pictures.get(path);
  if (known) return known;
  const url = URL.createObjectURL(await (await request(path)).blob());
  pictures.set(path, url);
  if (pictures.size > MOST_PICTURES) {
    const [oldest, address] = pictures.entries().next().value;
    pictures.delete(oldest);
    URL.revokeObjectURL(address);
  }
  return url;
}
