// The queue, beside every tab: what runs, what waits and in which order, what has ended since the page was opened.
import { post } from "../lib/api.js";
import { h, redraw, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt } from "./messages.js";
import { stateText } from "./result_view.js";

export class QueueDrawer {
  constructor() {
    this.list = h("div", { class: "jobs" });
    this.pause = h("button", { onclick: () => attempt(() => post(store.queue.paused ? "/queue/resume" : "/queue/pause")) });
    this.element = h("aside", { class: "drawer", id: "queue", "aria-label": t("queue.title"), hidden: true },
      h("header", {}, h("h2", {}, t("queue.title")),
        h("button", { class: "plain", "aria-label": t("close"), onclick: () => this.toggle() }, icon("close"))),
      h("div", { class: "actions" }, this.pause,
        h("button", { onclick: () => attempt(() => post("/jobs/cancel", { all: true })) }, t("queue.cancel_all"))),
      this.list);
    store.on("jobs", () => this.show());
    store.on("queue", () => this.show());
    store.on("progress", (id) => this.#progress(id));
  }

  toggle() {
    this.element.hidden = !this.element.hidden;
    document.getElementById("queue-button")?.setAttribute("aria-expanded", String(!this.element.hidden));
    this.show();
  }

  show() {
    if (this.element.hidden) return;
    replace(this.pause, icon(store.queue.paused ? "play" : "pause"), t(store.queue.paused ? "queue.resume" : "queue.pause"));
    const waiting = store.waiting();
    const group = (title, jobs, row) => (jobs.length ? [h("h3", {}, title), h("ul", {}, jobs.map(row))] : []);
    redraw(this.list, group(t("queue.running"), store.running(), (job) => this.#row(job, [this.#cancel(job)])),
      group(t("queue.waiting"), waiting, (job, i) => this.#row(job, [
        this.#button(job, "queue.up", "up", () => this.#move(waiting, i, i - 1), i === 0),
        this.#button(job, "queue.down", "down", () => this.#move(waiting, i, i + 1), i === waiting.length - 1),
        this.#cancel(job)])),
      group(t("queue.ended"), store.ended().slice(0, 20), (job) => this.#row(job, job.state === "completed" || job.kind === "train" ? [] : [ // a run is resumed in its tab
        this.#button(job, "retry", "retry", () => attempt(async () => store.add(await post(`/jobs/${job.id}/retry`))))])),
      store.jobs.size ? [] : h("p", { class: "quiet" }, t("queue.empty")));
  }

  // Only what moves is changed: a button that is replaced during a click would lose it.
  #progress(id) {
    const row = this.element.hidden ? null : this.list.querySelector(`[data-job="${id}"]`);
    const job = store.jobs.get(id);
    if (!row || !job) return;
    row.querySelector(".state").textContent = stateText(job);
    const bar = row.querySelector("progress");
    if (bar) bar.value = job.progress || 0;
  }

  #row(job, buttons) {
    const thumb = job.images?.[0]?.thumb_url || job.preview;
    return h("li", { "data-job": job.id }, thumb ? h("img", { src: thumb, alt: "" }) : h("span", { class: "no-image" }),
      h("div", { class: "what" }, h("p", { class: "one-line" }, job.request?.prompt || t(`kind.${job.kind}`)),
        h("p", { class: "quiet state" }, job.state === "failed" ? job.error?.message || t("state.failed") : stateText(job)),
        job.state === "running" ? h("progress", { max: 1, value: job.progress || 0, "aria-label": t("result.progress") }) : null),
      buttons);
  }

  #button(job, label, glyph, run, disabled = false) {
    return h("button", { class: "plain", "data-key": `${job.id}-${glyph}`, "aria-label": t(label), title: t(label), disabled, onclick: run }, icon(glyph));
  }
  #cancel = (job) => this.#button(job, "cancel", "close", () => attempt(() => post(`/jobs/${job.id}/cancel`)));

  async #move(waiting, from, to) {
    const ids = waiting.map((job) => job.id);
    ids.splice(to, 0, ...ids.splice(from, 1));
    await attempt(() => store.setOrder(ids));
  }
}
