// Requests to the server that this page came from, with the token of the address that it printed.

const KEY = "coding-gym-token";

/** Takes the token from the address's fragment, where it must not stay, and returns the rest of the fragment. */
export function takeToken() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token) {
    sessionStorage.setItem(KEY, token);
    fragment.delete("token");
    const rest = fragment.toString();
    history.replaceState(null, "", `${location.pathname}${location.search}${rest && `#${rest}`}`);
  }
  return fragment;
}

/** A request that failed, with a message for the user. */
export class RequestError extends Error {}

async function request(path, signal) {
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(path, { headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The server does not answer. Start coding-gym view again, and open the address that it prints.");
  }
  if (response.ok) return response;
  const { detail } = await response.json().catch(() => ({}));
  throw new RequestError(detail ?? `The server answered with status ${response.status}.`);
}

/** Returns a JSON document. */
export async function fetchJson(path, signal) {
  return (await request(path, signal)).json();
}

/** Returns a picture as a blob. */
export async function fetchBlob(path, signal) {
  return (await request(path, signal)).blob();
}
