// What the server makes of a prompt that names elements: the final text, the images that come with it, and warnings.
import { post } from "../lib/api.js";
import { debounced, h, replace } from "../lib/dom.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";

export class Resolution {
  constructor(form) {
    this.form = form;
    this.element = h("div", { class: "resolution", hidden: true });
    this.showSoon = debounced(300, () => this.#show());
    for (const name of ["elements", "project"]) store.on(name, () => this.showSoon());
  }

  async #show() {
    const { prompt } = this.form.draft;
    const report = prompt.includes("@") ? await post("/resolve", { prompt, project_id: store.project === "default" ? null : store.project }).catch(() => null) : null;
    if (prompt !== this.form.draft.prompt) return; // typed meanwhile
    const warnings = report?.warnings || [];
    this.element.hidden = !report || !(report.matched?.length || warnings.length);
    if (this.element.hidden) return;
    replace(this.element, h("p", { class: "quiet" }, t("resolution.prompt")), h("p", {}, report.prompt),
      report.references?.length ? h("div", { class: "strip" }, report.references.map((r) => h("img", { src: `/api/v1/assets/${r.asset_id}/thumb`, alt: t("gallery.image") }))) : null,
      warnings.map((w) => h("p", { class: "error" }, w)));
  }
}
