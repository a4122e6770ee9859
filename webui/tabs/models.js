// What is installed and in memory, and what can be downloaded.
import { call, get, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { bytes, seconds, t } from "../lib/text.js";
import { ask, attempt, dialog } from "../parts/messages.js";
import { coverOf, openModel } from "../parts/model_detail.js";

const TYPES = ["main", "lora", "vae", "text_encoder", "tokenizer", "upscaler"];
const SORTS = ["name", "type", "size"];
const OVER = ["completed", "error", "cancelled"];

export class ModelsTab {
  constructor() {
    this.installs = new Map();
    this.unfolded = new Set(); // installations whose files are shown
    this.list = h("div", { class: "models" });
    this.installList = h("ul", { class: "installs" });
    this.installBar = h("div", { class: "actions" });
    this.starters = h("div", { class: "models" });
    this.search = h("input", { type: "search", placeholder: t("models.search"), "aria-label": t("models.search"), oninput: () => this.show() });
    this.source = h("input", { placeholder: t("models.source_hint") });
    this.inPlace = h("input", { type: "checkbox" });
    const choice = (label, values, text) => h("select", { "aria-label": t(label), onchange: () => this.show() }, values.map((v) => h("option", { value: v }, text(v))));
    this.type = choice("models.type", ["", ...TYPES, "broken"], (v) => (v === "broken" ? t("models.broken") : v ? t(`type.${v}`) : t("models.all_types")));
    this.sort = choice("models.sort", SORTS, (v) => t(`models.by_${v}`));
    this.disk = h("p", { class: "quiet" });
    this.element = h("div", { class: "page" },
      h("div", { class: "toolbar models-bar" }, this.search, this.type, this.sort, h("button", { onclick: () => attempt(() => post("/models/unload")) }, t("models.unload")),
        h("button", { onclick: () => this.#scan() }, t("models.scan")), h("button", { onclick: () => this.#token() }, t("models.token"))),
      this.list, this.disk,
      h("h2", {}, t("models.add")),
      h("form", { class: "row", onsubmit: (e) => {
        e.preventDefault();
        this.#install(this.source.value.trim());
      } }, field(t("models.source"), this.source), h("label", {}, this.inPlace, t("models.in_place")), h("button", {}, icon("download"), t("models.install"))),
      this.installBar, this.installList, h("h2", {}, t("models.starters")), this.starters);
    store.on("info", () => this.show());
    for (const name of ["install.progress", "install.completed", "install.error"]) store.on(name, (data) => this.#changed(data));
    this.show();
  }

  async shown() {
    const [starters, installs, disk] = await Promise.all([attempt(() => get("/models/starter")), attempt(() => get("/models/installs")), get("/models/disk").catch(() => null)]);
    const used = (disk?.items || []).reduce((sum, i) => sum + i.bytes, 0);
    this.disk.textContent = disk?.free ? t("models.disk", { used: bytes(used), free: bytes(disk.free) }) : "";
    for (const install of installs?.items || []) this.installs.set(install.id, install);
    this.#showInstalls();
    replace(this.starters, (starters?.items || []).map((s) => h("article", { class: "card" }, h("h3", {}, s.name),
      h("p", { class: "quiet" }, s.summary),
      h("p", { class: "quiet" }, [s.bytes_to_fetch ? bytes(s.bytes_to_fetch) : "", ...new Set(s.parts.map((p) => p.license))].filter(Boolean).join(" · ")),
      s.parts.every((p) => p.present) ? h("p", { class: "badge" }, t("models.installed")) : h("button", { onclick: () => this.#install(s.name) }, icon("download"), t("models.install")))));
  }

  show() {
    const word = this.search.value.toLowerCase();
    const models = store.models.filter((m) => `${m.name} ${m.type} ${m.variant || ""} ${m.description || ""}`.toLowerCase().includes(word) && this.#isOfType(m));
    const orders = { name: (a, b) => a.name.localeCompare(b.name), type: (a, b) => a.type.localeCompare(b.type) || a.name.localeCompare(b.name),
      size: (a, b) => (b.bytes || 0) - (a.bytes || 0) };
    models.sort(orders[this.sort.value]);
    replace(this.list, models.length ? models.map((m) => this.#card(m)) : h("p", { class: "quiet" }, t("models.none")));
  }

  #isOfType(model) {
    const wanted = this.type.value;
    return !wanted || (wanted === "broken" ? (model.state || "ready") !== "ready" : model.type === wanted);
  }

  #card(model) {
    const loading = store.loading === model.name;
    const facts = [t(`type.${model.type}`), model.variant, model.quant, model.bytes ? bytes(model.bytes) : ""].filter(Boolean).join(" · ");
    const main = model.type === "main";
    return h("article", { class: "card" }, coverOf(model), h("h3", {}, model.name), h("p", { class: "quiet" }, facts),
      model.description ? h("p", {}, model.description) : null,
      model.state && model.state !== "ready" ? h("p", { class: "error" }, model.note || t(`model.${model.state}`)) : null,
      main && model.loaded ? h("p", { class: "badge" }, t("models.loaded")) : null,
      h("div", { class: "actions" },
        main && !model.loaded ? h("button", { disabled: loading, onclick: () => attempt(() => post(`/models/${encodeURIComponent(model.key || model.name)}/load`)) },
          t(loading ? "models.loading" : "models.load")) : null,
        model.key ? h("button", { onclick: () => openModel(model, () => store.refresh()) }, t("models.details")) : null,
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
    const install = await attempt(() => post("/models/install", this.inPlace.checked ? { source, in_place: true } : { source }));
    if (!install) return;
    this.source.value = "";
    this.#changed(install);
  }

  // What lies in the model folders; those that are ticked are registered where they are.
  async #scan() {
    const found = await attempt(() => post("/models/scan", {}));
    if (!found) return;
    const boxes = (found.items || []).map((part) => ({ part, box: h("input", { type: "checkbox", checked: !part.installed, disabled: part.installed }) }));
    const list = boxes.length ? h("ul", { class: "files" }, boxes.map(({ part, box }) => h("li", {}, h("label", {}, box, `${part.path} `,
      h("span", { class: "quiet" }, [t(`type.${part.type}`), part.variant, part.installed ? t("models.installed") : part.problem].filter(Boolean).join(" · "))))))
      : h("p", {}, t("models.scanned_none"));
    if (!(await ask(t("models.scan"), list, t("models.register"))) || !boxes.length) return;
    const wanted = boxes.filter(({ box }) => box.checked && !box.disabled);
    for (const { part } of wanted) await attempt(() => post("/models/install", { source: part.path, in_place: true }));
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

  // One button for all installations in some states.
  #forAll(label, states, run) {
    const all = [...this.installs.values()].filter((i) => states.includes(i.state));
    return all.length ? h("button", { class: "chip", onclick: () => Promise.all(all.map((i) => attempt(() => run(i)))) }, t(label)) : null;
  }

  #showInstalls() {
    const act = (verb) => async (i) => this.#changed(await post(`/models/installs/${i.id}/${verb}`));
    replace(this.installBar, this.installs.size < 2 ? [] : [this.#forAll("install.pause_all", ["downloading", "waiting"], act("pause")),
      this.#forAll("install.resume_all", ["paused"], act("resume")), this.#forAll("install.cancel_all", ["downloading", "waiting", "paused"], act("cancel")),
      this.#forAll("install.clear", OVER, async (i) => {
        await remove(`/models/installs/${i.id}`);
        this.installs.delete(i.id);
        this.#showInstalls();
      })]);
    replace(this.installList, [...this.installs.values()].map((i) => this.#row(i)));
  }

  // Stays open or closed while the list is drawn again.
  #files(install) {
    if ((install.files || []).length < 2) return null;
    return h("details", { open: this.unfolded.has(install.id), ontoggle: (e) => (e.target.open ? this.unfolded.add(install.id) : this.unfolded.delete(install.id)) },
      h("summary", {}, t("install.files", { n: install.files.length })), h("ul", { class: "files" }, install.files.map((f) => h("li", {}, h("span", { class: "one-line" }, f.path),
        h("span", { class: "quiet" }, f.total ? `${bytes(f.bytes || 0)} / ${bytes(f.total)}` : t(`install.${f.state}`)),
        f.state === "error" ? h("button", { class: "chip", onclick: () => attempt(() => post(`/models/installs/${install.id}/files/restart`, { path: f.path })) }, t("install.restart")) : null))));
  }

  #row(install) {
    const act = (label, verb) => h("button", { onclick: () => attempt(async () => this.#changed(await post(`/models/installs/${install.id}/${verb}`))) }, t(label));
    const over = OVER.includes(install.state);
    const amount = install.total ? `${bytes(install.bytes || 0)} / ${bytes(install.total)}` : "";
    const left = !over && install.eta_s ? t("time.left", { time: seconds(install.eta_s) }) : "";
    return h("li", {}, h("div", { class: "what" }, h("p", { class: "one-line" }, install.name || install.source),
      h("p", { class: "quiet" }, [t(`install.${install.state}`), amount, left].filter(Boolean).join(" · ")),
      install.error ? h("p", { class: "error" }, install.error.message) : null,
      over ? null : h("progress", { max: install.total || 1, value: install.bytes || 0, "aria-label": t("result.progress") }),
      this.#files(install)),
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
