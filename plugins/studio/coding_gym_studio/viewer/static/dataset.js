// The dataset that all pages of this module show: loaded once, and watched for new episodes.

import { html, nothing } from "/static/common/vendor/lit-html/lit-html.js";
import { getJson } from "./api.js";
import { counted } from "./format.js";
import { Rows } from "./rows.js";

const WATCH_MILLISECONDS = 3000;

class Dataset extends EventTarget {
  constructor() {
    super();
    this.rows = new Rows();
    this.state = null;
    this.found = null;
    /** Rows of the list in its last order, for going from one episode to the next. */
    this.order = null;
    this.compared = [];
    this.isLoading = false;
    /** What went wrong since the rows were loaded, which the banner says. */
    this.problem = "";
  }

  /** Loads the state, and begins to load the rows. */
  async open(context) {
    this.context = context;
    if (this.state) return;
    const state = getJson("/api/dataset");
    // At the same time: the rows that have been read are shown as soon as both are there.
    const loading = this.load();
    this.state = await state;
    void loading;
    this.#watch();
  }

  async load() {
    if (this.isLoading) return;
    this.isLoading = true;
    this.problem = "";
    this.context.setBanner("", nothing);
    try {
      await this.rows.load(() => this.dispatchEvent(new Event("change")));
    } catch (error) {
      this.context.fail(error);
    } finally {
      this.isLoading = false;
    }
  }

  #watch() {
    setTimeout(async () => {
      try {
        const state = await getJson("/api/dataset");
        if (this.isDisconnected) {
          this.isDisconnected = false;
          this.problem = "";
          this.context.setBanner("", nothing);
        }
        this.state = state;
        this.#announce();
      } catch (error) {
        this.isDisconnected = true;
        this.context.fail(error);
      }
      this.#watch();
    }, WATCH_MILLISECONDS);
  }

  /** Offers new episodes, which move the rows that are being looked at. */
  #announce() {
    if (this.isLoading) return;
    const { generation, problem, read } = this.state;
    // The list says what was wrong when it was loaded.
    const news = problem === this.rows.problem ? "" : problem;
    if (news !== this.problem) this.context.setBanner("bad", news ? html`<span>${news}</span>` : nothing);
    this.problem = news;
    if (news) return;
    const fresh = read - this.rows.length;
    if (generation === this.rows.generation && fresh <= 0) return;
    const text = generation === this.rows.generation ? counted(fresh, "new episode") : "The dataset was written anew";
    this.context.setBanner(
      "neutral",
      html`<span>${text}.</span> <button class="button" @click=${() => this.load()}>Show</button>`,
    );
  }
}

export const dataset = new Dataset();
