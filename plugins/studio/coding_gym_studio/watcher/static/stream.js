// The stream of updates: lines of JSON, read with the token that the address had in its fragment.

const KEY = "coding-gym-watch-token";
const STALLED_MS = 8000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/** Takes the token from the address, and removes it there; returns whether there is one, also of an earlier load. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/** Fetches a path with the token. */
export function request(path, options = {}) {
  return fetch(path, { ...options, headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` }, cache: "no-store" });
}

/**
 * Reads updates until the page is left, and connects again when the connection ends.
 * @param {(update: object, isFirst: boolean) => void} onUpdate Takes an update; the first of a connection is complete.
 * @param {(state: "live" | "disconnected" | "refused") => void} onState
 */
export async function follow(onUpdate, onState) {
  let pause = FIRST_PAUSE_MS;
  for (;;) {
    const controller = new AbortController();
    let timer = setTimeout(() => controller.abort(), STALLED_MS);
    try {
      const response = await request("api/stream", { signal: controller.signal });
      if (response.status === 401) {
        clearTimeout(timer);
        onState("refused");
        return;
      }
      if (!response.ok) throw new Error(`status ${response.status}`);
      let isFirst = true;
      for await (const line of lines(response.body)) {
        clearTimeout(timer);
        timer = setTimeout(() => controller.abort(), STALLED_MS);
        onState("live");
        onUpdate(JSON.parse(line), isFirst);
        isFirst = false;
        pause = FIRST_PAUSE_MS;
      }
    } catch (error) {
      if (error instanceof SyntaxError) console.error(error);
    }
    clearTimeout(timer);
    onState("disconnected");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  // Pieces are joined once per line: a line of thousands of sessions comes in many.
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = value.split("\n");
    for (const part of parts.slice(0, -1)) {
      pieces.push(part);
      yield pieces.join("");
      pieces = [];
    }
    if (parts.at(-1)) pieces.push(parts.at(-1));
  }
}
