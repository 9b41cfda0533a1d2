// Small pictures of the screens of visible sessions, loaded when they have changed.

import { request } from "./stream.js";

const MOST_LOADING = 4;
const MOST_KEPT = 400;
const WIDTH = 480;
const PAUSE_MS = 900;

export class Thumbnails {
  /** @param {() => void} onLoad Called when a picture has arrived. */
  constructor(onLoad) {
    this.onLoad = onLoad;
    this.pictures = new Map();
    this.loading = new Set();
  }

  /** Returns the address of the newest picture of a session; null if its screen is black, or not loaded yet. */
  get(session) {
    if (!session.has_screen || !session.picture) return null;
    return this.pictures.get(session.key)?.address ?? null;
  }

  /** Loads pictures of sessions whose screens have changed. */
  update(sessions) {
    for (const session of sessions) {
      if (this.loading.size >= MOST_LOADING) return;
      if (!session.has_screen || !session.picture || this.loading.has(session.key)) continue;
      const known = this.pictures.get(session.key);
      if (known?.number === session.picture || performance.now() - (known?.at ?? -PAUSE_MS) < PAUSE_MS) continue;
      this.#load(session, known);
    }
  }

  async #load(session, known) {
    this.loading.add(session.key);
    try {
      const response = await request(`api/processes/${session.process}/sessions/${session.id}/screen?width=${WIDTH}`);
      if (response.status === 200) {
        const address = URL.createObjectURL(await response.blob());
        this.pictures.delete(session.key);
        this.pictures.set(session.key, { address, number: session.picture, at: performance.now() });
        if (known) setTimeout(() => URL.revokeObjectURL(known.address), 1000);
        this.#forget();
        this.onLoad();
      } else if (known) known.at = performance.now();
      else if (response.status === 410) this.pictures.set(session.key, { address: null, number: session.picture, at: 0 });
    } catch {
      // Disconnected, which the page says already.
    } finally {
      this.loading.delete(session.key);
    }
  }

  #forget() {
    while (this.pictures.size > MOST_KEPT) {
      const [key, { address }] = this.pictures.entries().next().value;
      if (address) URL.revokeObjectURL(address);
      this.pictures.delete(key);
    }
  }
}
