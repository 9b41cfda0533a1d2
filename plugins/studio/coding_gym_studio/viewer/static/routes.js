// The pages, by the route in the fragment. Modules are loaded when they are needed.
//
// A module exports `open(place, context)`, which shows a page in `place.main` and returns an object with `close()`, and optionally
// `update(place)` for another place of the same page.

export const ROUTES = [
  { name: "list", pattern: /^\/$/, load: () => import("./list.js") },
  { name: "episode", pattern: /^\/episode\/(\d+)(?:\/step\/(\d+))?$/, load: () => import("./episode.js") },
  { name: "compare", pattern: /^\/compare\/(\d+)\/(\d+)$/, load: () => import("./compare.js") },
];
