// What the server makes of a prompt that names elements: the final text, the images that come with it, and warnings.
import { post } from "../lib/api.js";
import { debounced, h, replace } from "../lib/dom.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";

export class Resolution {
  constructor(form) {
    this.form = form;
    this.element = h("div", { class: "resolution", role: "status", hidden: true });
    this.reading = new Reading(() => this.#ask(), (found) => this.#show(found));
    this.showSoon = debounced(300, () => this.reading.read());
    for (const name of ["elements", "project", "projects"]) store.on(name, () => this.showSoon());
  }

  async #ask() {
    const { prompt } = this.form.draft;
    const request = { prompt };
    if (store.project !== "default") request.project_id = store.project;
    return { prompt, report: store.can("/resolve") && prompt.includes("@") ? await post("/resolve", request).catch(() => null) : null };
  }

  #show({ prompt, report }) {
    if (prompt !== this.form.draft.prompt) return; // typed meanwhile
    const warnings = report?.warnings || [], elsewhere = report?.suggestions || [], references = report?.references || [];
    this.element.hidden = !report || !(report.matched?.length || warnings.length || elsewhere.length);
    if (this.element.hidden) return;
    const projectOf = (id) => store.projects.find((p) => p.id === id)?.name || "";
    replace(this.element, report.matched?.length ? [h("p", { class: "quiet" }, t("resolution.prompt")), h("p", {}, report.prompt)] : null,
      references.length ? h("div", { class: "strip" }, references.map((r, i) => h("figure", {}, h("img", { src: `/api/v1/assets/${r.asset_id}/thumb`, alt: "" }),
        h("figcaption", { class: "quiet" }, t("references.nth", { n: i + 1 }))))) : null,
      elsewhere.map((e) => h("p", { class: "quiet" }, t("resolution.elsewhere", { trigger: e.trigger, project: projectOf(e.project_id) }))),
      warnings.map((w) => h("p", { class: "error" }, w)));
  }
}
