// Installations: their progress, and what can be done with them. Every window shows the same list.
import { get, post, remove } from "../lib/api.js";
import { h, redraw, replace, throttled } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, seconds, t } from "../lib/text.js";
import { attempt } from "./messages.js";

const OVER = ["completed", "error", "cancelled"];
const ACTIVE = ["downloading", "waiting", "verifying", "installing"];
const EXPECTED = { pause: "paused", resume: "waiting", retry: "waiting", restart: "waiting", cancel: "cancelled" }; // shown until the server answers

export class ModelInstalls {
  constructor() {
    this.all = new Map();
    this.unfolded = new Set(); // installations whose files are shown
    this.bar = h("div", { class: "actions" });
    this.list = h("ul", { class: "installs" });
    this.element = h("div", { class: "page" }, this.bar, this.list);
    this.reading = new Reading(() => get("/models/installs"), ({ items }) => {
      this.all = new Map(items.map((i) => [i.id, i]));
      this.show();
    });
    this.readSoon = throttled(300, () => this.read().catch(() => {}));
    store.on("install.progress", (data) => this.#progress(data));
    for (const name of ["install.completed", "install.error"]) store.on(name, () => this.readSoon());
    store.on("jobs", (id) => store.jobs.get(id)?.kind === "download" && this.readSoon()); // another window started or ended one
    store.on("connection", (state) => (state === "online" ? this.readSoon() : this.show()));
  }

  read = () => this.reading.read();

  // One that the server has just answered with.
  add(install) {
    this.reading.changed();
    this.#put(install);
  }

  #put(install) {
    this.all.set(install.id, install);
    this.show();
  }

  #progress(data) {
    const known = this.all.get(data.id);
    if (!known) {
      this.readSoon();
      return;
    }
    if (["paused", ...OVER].includes(known.state)) return; // the last report of one that was stopped
    const files = (known.files || []).map((f) => (f.path === data.file ? { ...f, state: "downloading" } : f));
    this.#put({ ...known, ...data, files, state: "downloading" });
  }

  // Shown at once; if the call fails, the server's state is shown again.
  async #act(install, verb) {
    this.#put({ ...install, state: EXPECTED[verb], error: null });
    await attempt(() => this.reading.store(async () => this.#put(await post(`/models/installs/${install.id}/${verb}`))));
  }

  #forget = (install) => attempt(() => this.reading.store(() => remove(`/models/installs/${install.id}`)));

  // One button for all installations in some states.
  #forAll(label, states, run) {
    const all = [...this.all.values()].filter((i) => states.includes(i.state));
    return all.length ? h("button", { class: "chip", disabled: store.connection === "offline", onclick: () => Promise.all(all.map(run)) }, t(label)) : null;
  }

  show() {
    replace(this.bar, this.all.size < 2 ? [] : [this.#forAll("install.pause_all", ACTIVE, (i) => this.#act(i, "pause")),
      this.#forAll("install.resume_all", ["paused"], (i) => this.#act(i, "resume")),
      this.#forAll("install.cancel_all", [...ACTIVE, "paused"], (i) => this.#act(i, "cancel")), this.#forAll("install.clear", OVER, (i) => this.#forget(i))]);
    redraw(this.list, [...this.all.values()].map((i) => this.#row(i)));
    this.element.hidden = !this.all.size;
  }

  // Stays open or closed while the list is drawn again.
  #files(install) {
    if ((install.files || []).length < 2) return null;
    return h("details", { open: this.unfolded.has(install.id), ontoggle: (e) => (e.target.open ? this.unfolded.add(install.id) : this.unfolded.delete(install.id)) },
      h("summary", {}, t("install.files", { n: install.files.length })), h("ul", { class: "files" }, install.files.map((f) => h("li", {}, h("span", { class: "one-line" }, f.path),
        h("span", { class: "quiet" }, f.total ? `${bytes(f.bytes || 0)} / ${bytes(f.total)}` : t(`install.${f.state}`)),
        ["error", "paused"].includes(install.state) && f.state !== "completed" ? h("button", { class: "chip", onclick: async () => {
          await attempt(() => post(`/models/installs/${install.id}/files/restart`, { path: f.path }));
          this.readSoon();
        } }, t("install.restart_file")) : null))));
  }

  #row(install) {
    const act = (label, verb) => h("button", { "data-key": `${install.id}-${verb}`, disabled: store.connection === "offline", onclick: () => this.#act(install, verb) }, t(label));
    const over = OVER.includes(install.state);
    const amount = install.total ? `${bytes(install.bytes || 0)} / ${bytes(install.total)}` : "";
    const speed = install.state === "downloading" && install.speed ? t("install.speed", { amount: bytes(install.speed) }) : "";
    const left = install.state === "downloading" && install.eta_s ? t("time.left", { time: seconds(install.eta_s) }) : "";
    return h("li", { "data-install": install.id, "data-state": install.state }, h("div", { class: "what" }, h("p", { class: "one-line" }, install.name || install.source),
      h("p", { class: "quiet" }, [t(`install.${install.state}`), amount, speed, left].filter(Boolean).join(" · ")),
      install.error ? h("p", { class: "error" }, install.error.message, install.error.page ? [" ", h("a", { href: install.error.page, target: "_blank", rel: "noreferrer" }, install.error.page)] : null) : null,
      over ? null : h("progress", { max: install.total || 1, value: install.bytes || 0, "aria-label": t("result.progress") }), this.#files(install)),
      install.state === "paused" ? act("install.resume", "resume") : null,
      ACTIVE.includes(install.state) ? act("install.pause", "pause") : null,
      install.state === "error" ? [act("retry", "retry"), act("install.restart", "restart")] : null,
      over ? h("button", { class: "plain", "aria-label": t("close"), onclick: () => this.#forget(install) }, icon("close")) : act("cancel", "cancel"));
  }
}
