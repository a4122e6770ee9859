// What is installed and in memory, and what can be downloaded.
import { call, get, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { bytes, seconds, t } from "../lib/text.js";
import { attempt, dialog } from "../parts/messages.js";

const OVER = ["completed", "error", "cancelled"];

export class ModelsTab {
  constructor() {
    this.installs = new Map();
    this.list = h("div", { class: "models" });
    this.installList = h("ul", { class: "installs" });
    this.starters = h("div", { class: "models" });
    this.search = h("input", { type: "search", placeholder: t("models.search"), "aria-label": t("models.search"), oninput: () => this.show() });
    this.source = h("input", { placeholder: t("models.source_hint") });
    this.element = h("div", { class: "page" },
      h("div", { class: "toolbar" }, this.search, h("button", { onclick: () => attempt(() => post("/models/unload")) }, t("models.unload")),
        h("button", { onclick: () => this.#scan() }, t("models.scan")), h("button", { onclick: () => this.#token() }, t("models.token"))),
      this.list,
      h("h2", {}, t("models.add")),
      h("form", { class: "row", onsubmit: (e) => {
        e.preventDefault();
        this.#install(this.source.value.trim());
      } }, field(t("models.source"), this.source), h("button", {}, icon("download"), t("models.install"))),
      this.installList, h("h2", {}, t("models.starters")), this.starters);
    store.on("info", () => this.show());
    for (const name of ["install.progress", "install.completed", "install.error"]) store.on(name, (data) => this.#changed(data));
    this.show();
  }

  async shown() {
    const [starters, installs] = await Promise.all([attempt(() => get("/models/starter")), attempt(() => get("/models/installs"))]);
    for (const install of installs?.items || []) this.installs.set(install.id, install);
    this.#showInstalls();
    replace(this.starters, (starters?.items || []).map((s) => h("article", { class: "card" }, h("h3", {}, s.name),
      h("p", { class: "quiet" }, s.summary),
      h("p", { class: "quiet" }, [s.bytes_to_fetch ? bytes(s.bytes_to_fetch) : "", ...new Set(s.parts.map((p) => p.license))].filter(Boolean).join(" · ")),
      s.parts.every((p) => p.present) ? h("p", { class: "badge" }, t("models.installed")) : h("button", { onclick: () => this.#install(s.name) }, icon("download"), t("models.install")))));
  }

  show() {
    const word = this.search.value.toLowerCase();
    const models = store.models.filter((m) => `${m.name} ${m.type} ${m.variant || ""}`.toLowerCase().includes(word));
    replace(this.list, models.length ? models.map((m) => this.#card(m)) : h("p", { class: "quiet" }, t("models.none")));
  }

  #card(model) {
    const loading = store.loading === model.name;
    const facts = [t(`type.${model.type}`), model.variant, model.quant, model.bytes ? bytes(model.bytes) : ""].filter(Boolean).join(" · ");
    const main = model.type === "main";
    return h("article", { class: "card" }, h("h3", {}, model.name), h("p", { class: "quiet" }, facts),
      model.state && model.state !== "ready" ? h("p", { class: "error" }, model.note || t(`model.${model.state}`)) : null,
      main && model.loaded ? h("p", { class: "badge" }, t("models.loaded")) : null,
      h("div", { class: "actions" },
        main && !model.loaded ? h("button", { disabled: loading, onclick: () => attempt(() => post(`/models/${encodeURIComponent(model.key || model.name)}/load`)) },
          t(loading ? "models.loading" : "models.load")) : null,
        model.key ? h("button", { class: "plain", "aria-label": t("models.remove", { name: model.name }), title: t("models.remove", { name: model.name }),
          onclick: () => this.#remove(model) }, icon("trash")) : null));
  }

  async #remove(model) {
    const answer = await dialog(t("models.remove", { name: model.name }), h("p", {}, t("models.remove_question")),
      { buttons: [{ value: "", label: t("cancel") }, { value: "keep", label: t("models.keep_files") }, { value: "files", label: t("models.delete_files") }] });
    if (!answer) return;
    await attempt(() => remove(`/models/${model.key}?files=${answer === "files" ? 1 : 0}`));
    await store.refresh();
  }

  async #install(source) {
    if (!source) return;
    const install = await attempt(() => post("/models/install", { source }));
    if (!install) return;
    this.source.value = "";
    this.#changed(install);
  }

  async #scan() {
    const found = await attempt(() => post("/models/scan", { add: true }));
    if (!found) return;
    await dialog(t("models.scan"), h("p", {}, t("models.scanned", { n: (found.items || []).length })));
    await store.refresh();
  }

  async #token() {
    const state = await attempt(() => get("/settings/hub-token"));
    if (!state) return;
    const input = h("input", { type: "password", autocomplete: "off" });
    const words = !state.set ? "token.none" : state.valid === null ? "token.unknown" : state.valid ? "token.valid" : "token.invalid";
    const answer = await dialog(t("models.token"), [h("p", { class: "quiet" }, t(words)), field(t("token.label"), input)],
      { buttons: [{ value: "delete", label: t("token.delete") }, { value: "save", label: t("token.save"), primary: true }] });
    if (answer === "save" && input.value) await attempt(() => call("PUT", "/settings/hub-token", { token: input.value }));
    if (answer === "delete") await attempt(() => remove("/settings/hub-token"));
  }

  async #changed(data) {
    const known = { ...this.installs.get(data.id), ...data };
    this.installs.set(data.id, known);
    this.#showInstalls();
    const whole = known.state && known.source ? null : await get(`/models/installs/${data.id}`).catch(() => null);
    if (whole) this.installs.set(whole.id, whole);
    this.#showInstalls();
  }

  #showInstalls() {
    replace(this.installList, [...this.installs.values()].map((i) => this.#row(i)));
  }

  #row(install) {
    const act = (label, verb) => h("button", { onclick: () => attempt(async () => this.#changed(await post(`/models/installs/${install.id}/${verb}`))) }, t(label));
    const over = OVER.includes(install.state);
    const amount = install.total ? `${bytes(install.bytes || 0)} / ${bytes(install.total)}` : "";
    const left = !over && install.eta_s ? t("time.left", { time: seconds(install.eta_s) }) : "";
    return h("li", {}, h("div", { class: "what" }, h("p", { class: "one-line" }, install.name || install.source),
      h("p", { class: "quiet" }, [t(`install.${install.state}`), amount, left].filter(Boolean).join(" · ")),
      install.error ? h("p", { class: "error" }, install.error.message) : null,
      over ? null : h("progress", { max: install.total || 1, value: install.bytes || 0, "aria-label": t("result.progress") })),
      install.state === "paused" ? act("install.resume", "resume") : null,
      ["downloading", "waiting"].includes(install.state) ? act("install.pause", "pause") : null,
      install.state === "error" ? act("retry", "retry") : null,
      over ? h("button", { class: "plain", "aria-label": t("close"), onclick: () => attempt(async () => {
        await remove(`/models/installs/${install.id}`);
        this.installs.delete(install.id);
        this.#showInstalls();
      }) }, icon("close")) : act("cancel", "cancel"));
  }
}
