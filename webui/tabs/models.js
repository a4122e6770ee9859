// What is installed, and what is in memory.
import { post } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { store } from "../lib/store.js";
import { bytes, t } from "../lib/text.js";
import { attempt } from "../parts/messages.js";

export class ModelsTab {
  constructor() {
    this.list = h("div", { class: "models" });
    this.search = h("input", { type: "search", placeholder: t("models.search"), "aria-label": t("models.search"), oninput: () => this.show() });
    this.element = h("div", { class: "page" }, h("div", { class: "toolbar" }, this.search,
      h("button", { onclick: () => attempt(() => post("/models/unload")) }, t("models.unload"))), this.list,
      h("p", { class: "quiet" }, t("models.install_hint")));
    store.on("info", () => this.show());
    this.show();
  }

  show() {
    const word = this.search.value.toLowerCase();
    const models = store.models.filter((m) => `${m.name} ${m.type} ${m.variant || ""}`.toLowerCase().includes(word));
    replace(this.list, models.length ? models.map((m) => this.#card(m)) : h("p", { class: "quiet" }, t("models.none")));
  }

  #card(model) {
    const loading = store.loading === model.name;
    const facts = [t(`type.${model.type}`), model.variant, model.quant, model.bytes ? bytes(model.bytes) : ""].filter(Boolean).join(" · ");
    return h("article", { class: "card" }, h("h3", {}, model.name), h("p", { class: "quiet" }, facts),
      model.state && model.state !== "ready" ? h("p", { class: "error" }, model.note || t(`model.${model.state}`)) : null,
      model.type !== "main" ? null
        : model.loaded ? h("p", { class: "badge" }, t("models.loaded"))
          : h("button", { disabled: loading, onclick: () => attempt(() => post(`/models/${encodeURIComponent(model.key || model.name)}/load`)) },
            t(loading ? "models.loading" : "models.load")));
  }
}
