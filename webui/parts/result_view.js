// Shows the jobs that a tab has submitted: preview and progress while one runs, then its images.
import { get, post } from "../lib/api.js";
import { h, redraw, replace } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { isFinal, store } from "../lib/store.js";
import { has, seconds, t } from "../lib/text.js";
import { compare } from "./compare.js";
import { imageActions } from "./image_actions.js";
import { attempt, dialog } from "./messages.js";

export const stateText = (job) => {
  if (job.state === "queued") return job.queue_position ? t("state.position", { n: job.queue_position }) : t("state.queued");
  if (job.state !== "running") return t(`state.${job.state}`);
  if (job.phase === "denoise" && job.steps) return t("state.step", { step: job.step, steps: job.steps });
  const phase = (job.phase || "").replaceAll(" ", "_");
  return has(`phase.${phase}`) ? t(`phase.${phase}`) : t("state.running");
};

export class ResultView {
  // `name` keeps the jobs of the tabs apart.
  constructor(name) {
    this.name = name;
    this.job = null; // its id
    this.finished = null; // the job itself once it has ended: the store forgets old ones
    this.isUsed = false; // since the page was loaded
    this.shown = 0; // index of the image
    this.drawn = ""; // what the stage shows now
    this.before = ""; // the image that the job changes
    this.listed = ""; // what strip and actions show now
    this.told = ""; // what the status line shows now
    this.stage = h("div", { class: "stage" });
    this.strip = h("div", { class: "strip", role: "group", "aria-label": t("result.images") });
    this.status = h("div", { class: "status" });
    this.actions = h("div", { class: "actions" });
    this.element = h("section", { class: "result", "aria-label": t("result.title") }, this.stage, this.status, this.strip, this.actions);
    store.on("jobs", () => this.show());
    store.on("progress", (id) => id === this.job && this.show());
    this.show();
    this.#restore();
  }

  follow(job, before = "") {
    this.isUsed = true;
    this.job = job.id;
    this.before = before;
    this.shown = 0;
    writeDraft(`result.${this.name}`, { job: job.id, before: before.startsWith("/") ? before : "" });
    this.show();
  }

  // A job that is being sent: the button was heard. Returns what shows the old one again.
  pending() {
    const { job, before } = this;
    Object.assign(this, { job: null, before: "", isUsed: true });
    this.show();
    this.status.textContent = t("state.sending");
    return () => {
      Object.assign(this, { job, before, told: "" });
      this.show();
    };
  }

  // What was shown before the page was loaded again.
  async #restore() {
    const { job: id, before } = readDraft(`result.${this.name}`, { job: "", before: "" });
    if (!id) return;
    const job = store.jobs.get(id) || (await get(`/jobs/${id}`).catch(() => null));
    if (!job || this.isUsed) return;
    store.add(job);
    this.follow(job, before);
  }

  #current() {
    const job = store.jobs.get(this.job);
    if (job && isFinal(job)) this.finished = job;
    return job ?? (this.finished?.id === this.job ? this.finished : null);
  }

  // The finished image that is shown.
  image() {
    const images = this.#current()?.images || [];
    return images[Math.min(this.shown, images.length - 1)];
  }

  show() {
    const job = this.#current();
    const images = job?.images || [];
    const image = this.image();
    this.onImage?.(Boolean(image));
    this.#draw(job, image);
    this.#showStatus(job);
    const key = `${this.job}|${job?.state}|${images.length}|${this.shown}|${this.before}`;
    if (key === this.listed) return;
    this.listed = key;
    redraw(this.strip, images.length < 2 ? [] : images.map((one, i) =>
      h("button", { class: "plain", "data-key": i, "aria-pressed": String(one === image), onclick: () => {
        this.shown = i;
        this.show();
      } }, h("img", { src: one.thumb_url, alt: t("result.nth", { n: i + 1 }) }))));
    replace(this.actions, image && isFinal(job) ? [...this.#compareButton(image), ...imageActions(job, image)] : []);
  }

  #compareButton(image) {
    if (!this.before) return [];
    return [h("button", { onclick: () => dialog(t("compare.show"), compare(this.before, image.url), { wide: true }) }, t("compare.show"))];
  }

  // The element is changed only when what it shows changes, so that images do not flicker.
  #draw(job, image) {
    const url = image?.url || job?.preview || "";
    const key = `${url}|${job?.state === "failed"}|${Boolean(job)}`;
    if (key === this.drawn) return;
    this.drawn = key;
    if (url) {
      const existing = this.stage.querySelector("img");
      if (existing) {
        existing.src = url;
        existing.alt = job.request?.prompt || "";
        existing.classList.toggle("preview", !image);
        return;
      }
      replace(this.stage, h("img", { src: url, alt: job.request?.prompt || "", class: image ? "" : "preview" }));
    } else if (job?.state === "failed") {
      replace(this.stage, h("div", { class: "empty" }, h("p", {}, job.error?.message || t("state.failed")),
        job.error?.hint ? h("p", { class: "quiet" }, job.error.hint) : null));
    } else {
      replace(this.stage, h("p", { class: "empty quiet" }, job ? "" : t("result.empty")));
    }
  }

  // Buttons stay the same elements while a job runs: one that is replaced during a click would lose it.
  #showStatus(job) {
    const key = `${this.job}|${job?.state}|${this.shown}|${job?.images?.length}`;
    if (key !== this.told) {
      this.told = key;
      this.bar = h("progress", { max: 1, "aria-label": t("result.progress") });
      this.line = h("span");
      replace(this.status, job ? this.#statusOf(job) : null);
    }
    if (!job || isFinal(job)) return;
    this.bar.value = job.state === "queued" ? 0 : job.progress || 0;
    this.line.textContent = stateText(job) + (job.eta_s ? ` · ${t("time.left", { time: seconds(job.eta_s) })}` : "");
  }

  #retry(job) {
    store.add(job);
    this.follow(job, this.before);
  }

  #statusOf(job) {
    if (job.state === "completed") {
      const warnings = (job.warnings || []).map((w) => h("p", { class: "quiet" }, w));
      const seed = job.images?.[this.shown]?.seed;
      return [h("span", {}, seed === undefined ? t("state.completed") : t("result.seed", { seed })), ...warnings];
    }
    if (isFinal(job)) {
      return [h("span", {}, stateText(job)),
        h("button", { onclick: () => attempt(async () => this.#retry(await post(`/jobs/${job.id}/retry`))) }, icon("retry"), t("retry"))];
    }
    return [this.bar, this.line, h("button", { onclick: () => attempt(() => post(`/jobs/${job.id}/cancel`)) }, icon("close"), t("cancel"))];
  }
}
