// What is installed and in memory, and what can be downloaded.
import { get, post, remove } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, t } from "../lib/text.js";
import { attempt, toast } from "../parts/messages.js";
import { ModelAdd } from "../parts/model_add.js";
import { coverOf, openModel } from "../parts/model_detail.js";
import { ModelInstalls } from "../parts/model_installs.js";
import { sendDialog, sendEach } from "../parts/sending.js";

const TYPES = ["main", "lora", "vae", "text_encoder", "tokenizer", "upscaler", "classifier", "image_encoder", "image_prompt"];
const text = (name) => (a, b) => (a[name] || "").localeCompare(b[name] || "") || a.name.localeCompare(b.name);
const SORTS = { name: text("name"), type: text("type"), variant: text("variant"), format: text("format"), path: text("path"), added: text("installed_at"),
  size: (a, b) => (a.bytes || 0) - (b.bytes || 0) };

export class ModelsTab {
  constructor() {
    this.chosen = new Set(); // keys
    this.backwards = false;
    this.list = h("div", { class: "models" });
    this.bulk = h("div", { class: "toolbar" });
    this.search = h("input", { type: "search", placeholder: t("models.search"), "aria-label": t("models.search"), oninput: () => this.show() });
    const choice = (label, values, words) => h("select", { "aria-label": t(label), onchange: () => this.show() }, values.map((v) => h("option", { value: v }, words(v))));
    this.type = choice("models.type", ["", ...TYPES, "broken"], (v) => (v === "broken" ? t("models.broken") : v ? t(`type.${v}`) : t("models.all_types")));
    this.sort = choice("models.sort", Object.keys(SORTS), (v) => t(`models.by_${v}`));
    this.direction = h("button", { class: "plain", "aria-pressed": "false", "aria-label": t("models.backwards"), title: t("models.backwards"), onclick: () => {
      this.backwards = !this.backwards;
      this.direction.setAttribute("aria-pressed", String(this.backwards));
      this.show();
    } }, icon("swap"));
    this.disk = h("p", { class: "quiet" });
    this.diskReading = new Reading(() => get("/models/disk").catch(() => null), (disk) => {
      const used = (disk?.items || []).reduce((sum, i) => sum + i.bytes, 0);
      this.disk.textContent = disk?.free && used ? t("models.disk", { used: bytes(used), free: bytes(disk.free) }) : "";
    });
    this.installs = new ModelInstalls();
    this.add = new ModelAdd(this.installs);
    this.element = h("div", { class: "page" },
      h("div", { class: "toolbar models-bar" }, this.search, this.type, this.sort, this.direction, h("button", { onclick: () => attempt(() => post("/models/unload")) }, t("models.unload"))),
      this.bulk, this.list, this.disk, this.add.element);
    store.on("info", () => this.show());
    this.show();
  }

  async shown() {
    await Promise.all([store.readModels().catch(() => {}), this.diskReading.read(), attempt(() => this.installs.read()), this.add.shown()]);
  }

  #shownModels() {
    const word = this.search.value.toLowerCase(), wanted = this.type.value;
    const isOfType = (m) => !wanted || (wanted === "broken" ? (m.state || "ready") !== "ready" : m.type === wanted);
    const models = store.models.filter((m) => `${m.name} ${m.type} ${m.variant || ""} ${m.description || ""}`.toLowerCase().includes(word) && isOfType(m));
    models.sort(SORTS[this.sort.value]);
    return this.backwards ? models.reverse() : models;
  }

  show() {
    const models = this.#shownModels();
    const known = new Set(store.models.map((m) => m.key));
    this.chosen = new Set([...this.chosen].filter((key) => known.has(key)));
    replace(this.list, models.length ? models.map((m) => this.#card(m)) : h("p", { class: "quiet" }, t("models.none")));
    this.#showBulk(models);
  }

  #card(model) {
    const loading = store.loading === model.name;
    const badges = [t(`type.${model.type}`), model.variant, model.format, model.quant, model.bytes ? bytes(model.bytes) : ""].filter(Boolean);
    const main = model.type === "main";
    const tick = model.key ? h("input", { type: "checkbox", checked: this.chosen.has(model.key), "aria-label": t("models.choose", { name: model.name }), onchange: (e) => {
      e.target.checked ? this.chosen.add(model.key) : this.chosen.delete(model.key);
      this.#showBulk(this.#shownModels());
    } }) : null;
    return h("article", { class: "card" }, h("div", { class: "card-head" }, coverOf(model), h("h3", {}, model.name), tick),
      h("p", { class: "facts" }, badges.map((b) => h("span", {}, b))), model.description ? h("p", {}, model.description) : null,
      model.state && model.state !== "ready" ? h("p", { class: "error" }, model.note || t(`model.${model.state}`)) : null,
      main && model.loaded ? h("p", { class: "badge" }, t("models.loaded")) : null,
      h("div", { class: "actions" },
        main && !model.loaded ? h("button", { disabled: loading, onclick: () => attempt(() => post(`/models/${encodeURIComponent(model.key || model.name)}/load`)) },
          t(loading ? "models.loading" : "models.load")) : null,
        model.key ? h("button", { onclick: () => openModel(model, () => store.readModels().catch(() => {})) }, t("models.details")) : null,
        model.key ? h("button", { class: "plain", "aria-label": t("models.remove", { name: model.name }), title: t("models.remove", { name: model.name }),
          onclick: () => this.#remove([model]) }, icon("trash")) : null));
  }

  // ---- several at once ----

  #showBulk(models) {
    const choosable = models.filter((m) => m.key);
    const button = (label, run) => h("button", { class: "chip", onclick: run }, t(label));
    const all = () => store.models.filter((m) => this.chosen.has(m.key));
    this.bulk.hidden = choosable.length < 2 && !this.chosen.size;
    replace(this.bulk, button("models.choose_all", () => {
      for (const m of choosable) this.chosen.add(m.key);
      this.show();
    }), this.chosen.size ? [h("span", { role: "status" }, t("gallery.chosen", { n: this.chosen.size })),
      button("model_detail.identify", () => this.#identify(all())),
      button("models.remove_chosen", () => this.#remove(all())), button("gallery.choose_none", () => {
        this.chosen.clear();
        this.show();
      })] : null);
  }

  async #identify(models) {
    const done = await attempt(() => sendEach(models, (m) => post(`/models/${m.key}/identify`)));
    if (done) toast(t("models.bulk_done", { done, failed: 0 }));
    await store.readModels().catch(() => {});
  }

  async #remove(models) {
    const title = models.length === 1 ? t("models.remove", { name: models[0].name }) : t("models.remove_several", { n: models.length });
    const button = (label, files) => ({ label: t(label), send: () => sendEach(models, (m) => remove(`/models/${m.key}?files=${files}`)) });
    await sendDialog(title, h("p", {}, t("models.remove_question")), [button("models.keep_files", 0), button("models.delete_files", 1)]);
    await store.readModels().catch(() => {}); // some may be gone, even if others were refused
  }
}
