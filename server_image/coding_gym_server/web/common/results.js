// Rich results: pictures and text. HTML and SVG are shown only on request, in a frame without any permission.

/** Numbers of results that are kept of a run: of the first, and in all. */
const FIRST_RESULTS = 100;
const MOST_RESULTS = 200;

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const TEXTS = { "text/markdown": "markdown", "text/latex": "LaTeX", "application/javascript": "javascript" };

/** What a frame may load, in addition to the policy of the page: the same as in notebooks (coding_gym/_html.py). */
const FRAME_POLICY =
  '<meta http-equiv="Content-Security-Policy" ' +
  "content=\"default-src 'none'; img-src data:; font-src data:; media-src data:; style-src 'unsafe-inline'\">";

/** The values and displays of a run, with their element. */
export class RunResults {
  /** @param {(label: string, text: string) => HTMLElement} textElement Returns the element of a text. */
  constructor(textElement) {
    this.textElement = textElement;
    this.element = document.createElement("div");
    this.element.className = "results";
    this.shown = [];
    this.omitted = 0;
    this.gap = document.createElement("p");
    this.gap.className = "results-gap muted";
  }

  get isEmpty() {
    return this.shown.length === 0;
  }

  add(results) {
    const added = results.map((result) => resultElement(result, this.textElement)).filter((element) => element !== null);
    this.shown.push(...added);
    this.element.append(...added);
    const left = this.shown.splice(FIRST_RESULTS, this.shown.length - MOST_RESULTS);
    if (left.length === 0) return;
    for (const element of left) element.remove();
    this.omitted += left.length;
    this.gap.textContent = `… ${this.omitted.toLocaleString("en")} results left out …`;
    this.shown[FIRST_RESULTS - 1].after(this.gap);
  }
}

/** Returns an element with a value or a display, or null if it has no format of which the page knows anything. */
function resultElement(result, textElement) {
  const { texts, documents, is_value: isValue } = result;
  const element = document.createElement("div");
  element.className = "result";
  const plain = texts["text/plain"];
  const picture = pictureOf(texts, plain);
  if (picture) element.append(picture);
  else if (isValue && plain !== undefined) element.append(textElement("value", plain));
  for (const [type, label] of Object.entries(TEXTS)) {
    if (texts[type] !== undefined && !picture) element.append(textElement(label, texts[type]));
  }
  const json = documents["application/json"];
  // Of values that have both, such as dictionaries, the plain text says as much.
  if (json !== undefined && plain === undefined) element.append(textElement("JSON", indented(json)));
  const svg = texts["image/svg+xml"];
  // A few bytes of SVG can ask for more drawing than a browser can do.
  if (svg !== undefined && !picture) element.append(frameOnRequest("Show picture", "Picture that the code displayed", pageOf(svg)));
  if (texts["text/html"] !== undefined) element.append(frameOnRequest("Show HTML", "HTML that the code displayed", texts["text/html"]));
  return element.childElementCount > 0 ? element : null;
}

function pictureOf(texts, plain) {
  const type = PICTURES.find((name) => texts[name] !== undefined);
  if (!type) return null;
  const picture = document.createElement("img");
  picture.className = "result-picture";
  picture.alt = plain ? `Picture: ${plain.slice(0, 200)}` : "Picture that the code displayed";
  picture.src = `data:${type};base64,${texts[type].replaceAll(/\s/g, "")}`;
  return picture;
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns a page with an SVG as a picture, as which it runs no scripts and loads nothing. */
function pageOf(svg) {
  const source = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg).replaceAll("'", "%27")}`;
  return `<!doctype html><img alt="" src='${source}'>`;
}

/** Returns a button that puts a frame with a page in its place. */
function frameOnRequest(label, title, html) {
  const container = document.createElement("div");
  container.className = "result-html";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  button.textContent = label;
  button.title = "In a frame that runs no scripts and loads nothing";
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe");
    // Without scripts, forms, navigation, storage, or access to this page.
    frame.setAttribute("sandbox", "");
    frame.title = title;
    // Chromium connects to the host of a frame before it refuses to load it.
    frame.srcdoc = FRAME_POLICY + html.replaceAll(/<(?=i?frame)/gi, "&lt;");
    button.replaceWith(frame);
    frame.focus();
  });
  container.append(button);
  return container;
}
