// One image with everything that is known of it, in a dialog. Arrows go on to the next.
import { get, patch } from "../lib/api.js";
import { field, h, isTyping, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { inTurn } from "../lib/reading.js";
import { t } from "../lib/text.js";
import { imageActions, sendTo, settingsOf } from "./image_actions.js";
import { attempt, dialog } from "./messages.js";

// Of an image whose job is not stored any more, this much is known.
const jobOf = (item) => ({ request: { prompt: item.prompt, model: item.model }, resolved: { prompt: item.prompt, width: item.width, height: item.height }, created_at: item.created_at });

export class ImageDetail {
  #oneByOne = inTurn();

  // `items()` are those of the gallery; `changed(asset)` and `remove(item)` are its reactions.
  constructor({ items, changed, remove }) {
    Object.assign(this, { items, changed, remove });
    this.body = h("div", { class: "detail" });
  }

  async open(place) {
    this.place = place;
    const keys = (event) => this.#key(event);
    document.addEventListener("keydown", keys);
    this.#show();
    await dialog(t("gallery.image"), this.body, { wide: true });
    document.removeEventListener("keydown", keys);
  }

  #close = () => this.body.closest("dialog")?.close();

  async #show() {
    const item = this.items()[this.place];
    if (!item) {
      this.#close();
      return;
    }
    this.item = item;
    this.job = jobOf(item);
    this.#draw();
    const job = item.job_id ? await get(`/jobs/${item.job_id}`).catch(() => null) : null;
    if (job && this.item === item) {
      this.job = job;
      this.#drawJob();
    }
    const lineage = await get(`/assets/${item.id}/lineage`).catch(() => null);
    if (lineage && this.item === item) this.#showLineage(lineage);
  }

  #draw() {
    const { item } = this;
    this.facts = h("dl");
    this.actions = h("div", { class: "actions", onclick: (e) => e.target.closest("button") && this.#close() });
    this.lineage = h("div");
    this.#drawJob();
    replace(this.body, h("img", { src: item.url, alt: item.prompt || "" }),
      h("div", { class: "side" }, this.facts, this.#star(), this.#tags(), this.actions,
        h("button", { class: "danger", onclick: () => this.#delete() }, icon("trash"), t(item.deleted_at ? "gallery.delete_forever" : "gallery.delete")),
        this.lineage));
  }

  // What the job says. Tags stay as they are: somebody may be writing them.
  #drawJob() {
    const { item, job } = this;
    const r = job.resolved || {};
    const facts = { prompt: r.prompt ?? item.prompt, negative: r.negative, model: r.model?.id ?? item.model, size: `${item.width} × ${item.height}`, seed: item.seed,
      steps: r.steps, guidance: r.guidance, sampler: r.sampler, schedule: r.schedule, profile: r.profile, loras: (item.loras || []).join(", "),
      created: new Date(item.created_at).toLocaleString() };
    replace(this.facts, Object.entries(facts).filter(([, v]) => v !== undefined && v !== null && v !== "")
      .map(([name, value]) => [h("dt", {}, t(`field.${name}`)), h("dd", {}, String(value))]));
    replace(this.actions, imageActions(job, this.#image()));
  }

  #image() {
    const { item } = this;
    return { asset_id: item.id, url: item.url, thumb_url: item.thumb_url, width: item.width, height: item.height, seed: item.seed ?? "", mime: item.mime };
  }

  // `values()` gives what changes, when it is sent.
  #change = (item, values) => this.#oneByOne(async () => {
    const asset = await attempt(() => patch(`/assets/${item.id}`, values()));
    if (!asset) return;
    this.changed(asset);
    Object.assign(item, asset);
  });

  #star() {
    const { item } = this;
    const button = h("button", { "aria-pressed": String(item.starred), onclick: async () => {
      await this.#change(item, () => ({ starred: !item.starred }));
      button.setAttribute("aria-pressed", String(item.starred));
    } }, icon("star"), t("gallery.star"));
    return button;
  }

  #tags() {
    const { item } = this;
    const input = h("input", { value: item.tags.join(", "), onchange: () => this.#change(item, () => ({ tags: input.value.split(",").map((tag) => tag.trim()).filter(Boolean) })) });
    return field(t("gallery.tags"), input, { hint: t("gallery.tags_hint") });
  }

  #showLineage({ ancestors, descendants }) {
    const row = (title, list) => (list.length ? [h("h3", {}, t(title)), h("div", { class: "strip" }, list.map((a) =>
      h("a", { href: a.url, target: "_blank", title: a.prompt }, h("img", { src: a.thumb_url, alt: a.prompt || t("gallery.image") }))))] : []);
    replace(this.lineage, row("gallery.made_from", ancestors), row("gallery.made_into", descendants));
  }

  // Its place now: new images come first.
  #at = () => this.items().findIndex((item) => item.id === this.item.id);

  async #delete() {
    this.place = this.#at();
    await this.remove(this.item);
    this.#show(); // the next one has taken its place
  }

  #key(event) {
    const isTop = [...document.querySelectorAll("dialog[open]")].at(-1)?.contains(this.body); // a question may be asked above it
    if (!isTop || isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = this.#at() + step;
      if (!this.items()[next]) return;
      this.place = next;
      this.#show();
      return;
    }
    if (event.key === "Delete") {
      this.#delete();
      return;
    }
    const all = settingsOf(this.job, { seed: this.item.seed });
    const uses = { a: all, r: { ...all, seed: "" }, p: { prompt: all.prompt }, s: { seed: all.seed }, d: { width: this.item.width, height: this.item.height } };
    const settings = uses[event.key];
    if (!settings) return;
    event.preventDefault();
    this.#close();
    sendTo("generate", { settings });
  }
}
