// All finished images, newest first. Only what is on the screen is in the document, so it may be very long.
import { get, remove } from "../lib/api.js";
import { h, isTyping, replace } from "../lib/dom.js";
import { isFinal, store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { imageActions } from "../parts/image_actions.js";
import { attempt, dialog } from "../parts/messages.js";

const CELL = 180; // px, with its gap
const PAGE = 100; // jobs that are read at a time
const SPARE_ROWS = 2;

export class GalleryTab {
  constructor() {
    this.items = []; // { job, image }
    this.shownItems = []; // those that match the search
    this.cursor = ""; // "": from the newest; null: everything was read
    this.search = h("input", { type: "search", placeholder: t("gallery.search"), "aria-label": t("gallery.search"), oninput: () => this.#filter() });
    this.spacer = h("div", { class: "spacer" });
    this.scroller = h("div", { class: "gallery", tabindex: -1, onscroll: () => this.#draw() }, this.spacer);
    this.empty = h("p", { class: "empty quiet", hidden: true }, t("gallery.empty"));
    this.element = h("div", { class: "gallery-tab" }, h("div", { class: "toolbar" }, this.search), this.empty, this.scroller);
    new ResizeObserver(() => this.#draw()).observe(this.scroller);
    store.on("ended", (job) => job?.state === "completed" && this.#addNew(job));
  }

  shown() {
    if (this.cursor === "") this.#more();
    else this.#draw();
  }

  async #more() {
    if (this.cursor === null || this.reading) return;
    this.reading = true;
    const before = this.cursor ? `&before=${this.cursor}` : "";
    const page = await attempt(() => get(`/jobs?state=completed&limit=${PAGE}${before}`));
    this.reading = false;
    if (!page) return;
    this.cursor = page.next;
    const known = new Set(this.items.map((i) => i.job.id));
    for (const job of page.items) if (!known.has(job.id)) for (const image of job.images) this.items.push({ job, image });
    this.#filter();
  }

  #addNew(job) {
    if (this.cursor === "" || this.items.some((i) => i.job.id === job.id)) return;
    this.items.unshift(...job.images.map((image) => ({ job, image })));
    this.#filter();
  }

  #filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = ({ job, image }) => {
      const text = `${job.request?.prompt || ""} ${job.resolved?.model?.id || ""} ${image.seed}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    this.shownItems = words.length ? this.items.filter(matches) : this.items;
    this.empty.hidden = this.shownItems.length > 0 || Boolean(this.reading);
    this.#draw();
  }

  #draw() {
    if (!this.scroller.isConnected || this.scroller.clientWidth === 0) return;
    const columns = Math.max(1, Math.floor(this.scroller.clientWidth / CELL));
    const rows = Math.ceil(this.shownItems.length / columns);
    this.spacer.style.height = `${rows * CELL}px`;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / CELL) - SPARE_ROWS);
    const last = Math.min(rows, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / CELL) + SPARE_ROWS);
    const wanted = new Map();
    for (let i = first * columns; i < Math.min(last * columns, this.shownItems.length); ++i) {
      const { job, image } = this.shownItems[i];
      wanted.set(`${job.id}/${image.index}`, i);
    }
    for (const cell of [...this.spacer.children]) {
      const place = wanted.get(cell.dataset.key);
      if (place === undefined) cell.remove();
      else this.#place(cell, place, columns);
      wanted.delete(cell.dataset.key);
    }
    for (const [key, i] of wanted) this.spacer.append(this.#place(this.#cell(key, this.shownItems[i]), i, columns));
    if (last >= rows) this.#more();
  }

  #cell(key, item) {
    return h("button", { class: "cell plain", "data-key": key, onclick: () => this.#open(item) },
      h("img", { src: item.image.thumb_url, alt: item.job.request?.prompt || "", loading: "lazy", onerror: () => this.#forget([item.image.asset_id]) }));
  }

  // Jobs that made the same bytes share one image, so it is gone for all of them.
  #forget(assets) {
    this.items = this.items.filter((i) => !assets.includes(i.image.asset_id));
    this.#filter();
  }

  #place(cell, i, columns) {
    cell.style.transform = `translate(${(i % columns) * CELL}px, ${Math.floor(i / columns) * CELL}px)`;
    cell.dataset.place = i;
    return cell;
  }

  // One image with everything that is known of it; arrows go on to the next.
  #open(item) {
    const body = h("div", { class: "detail" });
    let place = this.shownItems.indexOf(item);
    const show = () => {
      const { job, image } = this.shownItems[place];
      const r = job.resolved || {};
      const facts = { prompt: r.prompt, negative: r.negative, model: r.model?.id, size: `${image.width} × ${image.height}`, seed: image.seed,
        steps: r.steps, guidance: r.guidance, sampler: r.sampler, schedule: r.schedule, profile: r.profile,
        created: new Date(job.created_at).toLocaleString() };
      replace(body, h("img", { src: image.url, alt: r.prompt || "" }),
        h("div", {}, h("dl", {}, Object.entries(facts).filter(([, v]) => v !== undefined && v !== null && v !== "")
          .map(([name, value]) => [h("dt", {}, t(`field.${name}`)), h("dd", {}, String(value))])),
          h("div", { class: "actions", onclick: (e) => e.target.closest("button") && body.closest("dialog").close() }, imageActions(job, image)),
          h("button", { class: "danger", onclick: () => this.#delete(job, body) }, t("gallery.delete"))));
    };
    show();
    const keys = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || isTyping(event) || !this.shownItems[place + step]) return;
      place += step;
      show();
    };
    document.addEventListener("keydown", keys);
    dialog(t("gallery.image"), body, { wide: true }).then(() => document.removeEventListener("keydown", keys));
  }

  async #delete(job, body) {
    const answer = await dialog(t("gallery.delete"), h("p", {}, t("gallery.delete_question", { n: job.images.length })),
      { buttons: [{ value: "no", label: t("cancel") }, { value: "yes", label: t("gallery.delete"), primary: true }] });
    if (answer !== "yes") return;
    const done = await attempt(async () => {
      for (const image of job.images) await remove(`/assets/${image.asset_id}`);
      if (isFinal(job)) await remove(`/jobs/${job.id}`);
      return true;
    });
    if (!done) return;
    body.closest("dialog").close();
    this.#forget(job.images.map((image) => image.asset_id));
  }
}
