// Routes, the header, and what is shown when something is wrong.

import { html, nothing, render } from "/static/common/vendor/lit-html/lit-html.js";
import { currentTheme, toggleTheme } from "/static/common/theme.js";
import { RequestError, setToken, takeToken } from "./api.js";
import { ROUTES } from "./routes.js";

const main = document.getElementById("main");
const header = document.getElementById("header");
const banner = document.getElementById("banner");

let current = null;
let opening = 0;

/** What pages use of this module. */
const context = {
  /** Goes to a route, or replaces the current one. */
  go(route, { replace = false } = {}) {
    if (replace) {
      history.replaceState(null, "", `#${route}`);
      void show();
    } else {
      location.hash = route;
    }
  },
  /** Shows the name of a page and its parts in the header. */
  setHeader(title, parts = nothing) {
    document.title = title;
    render(headerTemplate(title, parts), header);
  },
  /** Shows a notice below the header, nothing to remove it. */
  setBanner(kind, content) {
    banner.className = content === nothing ? "" : "banner";
    banner.dataset.kind = kind;
    render(content, banner);
  },
  fail,
};

function headerTemplate(title, parts) {
  const isDark = currentTheme() === "dark";
  return html`
    <h1>${title}</h1>
    ${parts}
    <span class="spacer"></span>
    <button
      class="button quiet"
      aria-label=${isDark ? "Light theme" : "Dark theme"}
      title=${isDark ? "Light theme" : "Dark theme"}
      @click=${() => {
        toggleTheme();
        render(headerTemplate(title, parts), header);
      }}
    >
      ${isDark ? "☀" : "☾"}
    </button>
  `;
}

/** Shows why something failed. */
function fail(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof RequestError)) {
    console.error(error);
    showProblem("The page has a defect", String(error.message ?? error));
  } else if (error.status === 401) {
    askForToken();
  } else if (error.status === 0) {
    context.setBanner(
      "bad",
      html`<span>${error.message}</span>
        <button class="button" @click=${() => location.reload()}>Try again</button>`,
    );
    if (!current) showProblem("Disconnected", "Start coding-gym view again, and open the address that it prints.");
  } else {
    showProblem(error.status === 404 ? "Not found" : "This cannot be shown", error.message);
  }
}

function showProblem(title, text) {
  close();
  render(
    html`<div class="empty">
      <h2>${title}</h2>
      <p>${text}</p>
      <p><a class="button" href="#/">All episodes</a></p>
    </div>`,
    fresh(),
  );
}

function askForToken() {
  close();
  context.setHeader("Episodes");
  const submit = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    location.reload();
  };
  render(
    html`<form class="empty" @submit=${submit}>
      <h2>This page needs its token</h2>
      <p>Open the whole address that <code>coding-gym view</code> printed, or paste it here.</p>
      <label class="toolbar">Address <input class="field" name="token" autocomplete="off" required /></label>
      <button class="button primary">Open</button>
    </form>`,
    fresh(),
  );
}

function close() {
  current?.page?.close?.();
  current = null;
}

/** Returns an empty element for a page, which lit-html has not rendered to. */
function fresh() {
  const element = document.createElement("div");
  element.className = "page";
  main.replaceChildren(element);
  return element;
}

async function show() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const route = ROUTES.find(({ pattern }) => pattern.test(path));
  if (!route) {
    showProblem("Not found", `There is no page ${path}.`);
    return;
  }
  const place = { path, parts: route.pattern.exec(path).slice(1), query: new URLSearchParams(query) };
  const turn = ++opening;
  try {
    if (current?.name === route.name && (await current.page.update?.(place))) return;
    const module = await route.load();
    if (turn !== opening) return;
    const isFirst = !current;
    close();
    current = { name: route.name, page: { close() {} } };
    // For readers of screens, and so that keys do not go to an element that is gone.
    if (!isFirst) main.focus({ preventScroll: true });
    const page = await module.open({ ...place, main: fresh() }, context);
    if (turn === opening) current = { name: route.name, page };
    else page.close();
  } catch (error) {
    if (turn === opening) fail(error);
  }
}

document.getElementById("skip").addEventListener("click", (event) => {
  // Not a route.
  event.preventDefault();
  main.focus();
});
addEventListener("unhandledrejection", (event) => fail(event.reason));
addEventListener("hashchange", () => {
  takeToken();
  void show();
});
takeToken();
void show();
