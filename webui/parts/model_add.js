// Ways to add a model: a repository, an address or a path; files of the hub to choose from; what lies in the model folders; starters.
import { call, get, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { bytes, t } from "../lib/text.js";
import { ask, attempt, dialog, toast } from "./messages.js";

const REPOSITORY = /^[\w.-]+\/[\w.-]+$/;

// A list with tick boxes and a search field. Items: { text, detail, checked, disabled }.
function tickList(items) {
  const rows = items.map((item) => {
    const box = h("input", { type: "checkbox", checked: item.checked, disabled: item.disabled });
    return { item, box, row: h("li", {}, h("label", {}, box, `${item.text} `, h("span", { class: "quiet" }, item.detail))) };
  });
  const search = h("input", { type: "search", placeholder: t("models.filter_files"), "aria-label": t("models.filter_files"), oninput: () => {
    for (const { item, row } of rows) row.hidden = !item.text.toLowerCase().includes(search.value.toLowerCase());
  } });
  const all = (checked) => h("button", { type: "button", class: "chip", onclick: () => {
    for (const { box, row } of rows) if (!box.disabled && !row.hidden) box.checked = checked;
  } }, t(checked ? "models.tick_all" : "models.tick_none"));
  const element = h("div", { class: "form" }, h("div", { class: "toolbar" }, search, all(true), all(false)), h("ul", { class: "files ticks" }, rows.map((r) => r.row)));
  return { element, ticked: () => rows.filter(({ box }) => box.checked && !box.disabled).map(({ item }) => item) };
}

export class ModelAdd {
  constructor(installs) {
    this.installs = installs;
    this.source = h("input", { placeholder: t("models.source_hint"), oninput: () => (this.look.hidden = !REPOSITORY.test(this.source.value.trim())) });
    this.inPlace = h("input", { type: "checkbox" });
    this.look = h("button", { type: "button", hidden: true, onclick: () => this.#chooseFiles() }, t("models.show_files"));
    this.starters = h("div", { class: "models" });
    this.element = h("div", { class: "page" }, h("h2", {}, t("models.add")),
      h("form", { class: "row", onsubmit: (e) => {
        e.preventDefault();
        this.#install(this.source.value.trim());
      } }, h("div", { class: "field long" }, field(t("models.source"), this.source)), h("label", { class: "tick" }, this.inPlace, t("models.in_place")),
        h("div", { class: "actions" }, h("button", {}, icon("download"), t("models.install")), this.look, h("button", { type: "button", onclick: () => this.#scan() }, t("models.scan")),
          h("button", { type: "button", onclick: () => this.#token() }, t("models.token")))),
      installs.element, h("h2", {}, t("models.starters")), this.starters);
  }

  async shown() {
    const starters = await attempt(() => get("/models/starter"));
    replace(this.starters, (starters?.items || []).map((s) => {
      const present = s.parts.filter((p) => p.present).length, lacking = s.parts.length - present;
      return h("article", { class: "card" }, h("h3", {}, s.name), h("p", { class: "quiet" }, s.summary),
        h("p", { class: "quiet" }, [s.bytes_to_fetch ? bytes(s.bytes_to_fetch) : "", ...new Set(s.parts.map((p) => p.license))].filter(Boolean).join(" · ")),
        lacking && present ? h("p", { class: "quiet" }, t("models.parts", { lacking, present })) : null,
        lacking ? h("button", { onclick: () => this.#install(s.name) }, icon("download"), t("models.install")) : h("p", { class: "badge" }, t("models.installed")));
    }));
  }

  async #install(source) {
    if (!source) return;
    const install = await attempt(() => post("/models/install", this.inPlace.checked ? { source, in_place: true } : { source }));
    if (!install) return;
    this.source.value = "";
    this.look.hidden = true;
    this.installs.add(install);
  }

  // The files of a repository: some, or all.
  async #chooseFiles() {
    const repository = this.source.value.trim();
    const found = await attempt(() => get(`/models/hub?repo=${encodeURIComponent(repository)}`));
    if (!found) return;
    const list = tickList(found.items.filter((f) => f.installable).map((f) => ({ text: f.path, detail: bytes(f.bytes), checked: false })));
    const notes = [found.license, found.gated ? t("models.gated") : ""].filter(Boolean).join(" · ");
    if (!(await ask(repository, [h("p", { class: "quiet" }, notes), list.element], t("models.install_chosen")))) return;
    const paths = list.ticked().map((i) => i.text);
    await this.#install(paths.length ? `${repository}::${paths.join("+")}` : repository);
  }

  // What lies in the model folders; those that are ticked are registered where they are.
  async #scan() {
    const [found, orphans] = await Promise.all([attempt(() => post("/models/scan", {})), get("/models/orphans").catch(() => null)]);
    if (!found) return;
    const list = tickList(found.items.map((part) => ({ part, text: part.path, checked: !part.installed && !part.problem, disabled: part.installed,
      detail: [t(`type.${part.type}`), part.variant, part.installed ? t("models.installed") : part.problem].filter(Boolean).join(" · ") })));
    const partial = (orphans?.items || []).filter((o) => o.state === "partial" || o.problem);
    const content = [found.items.length ? list.element : h("p", {}, t("models.scanned_none")),
      partial.length ? [h("h3", {}, t("models.orphans")), h("ul", { class: "files" }, partial.map((o) => h("li", {}, h("span", {}, o.path), h("span", { class: "quiet" }, `${bytes(o.bytes)} ${o.problem || ""}`))))] : null];
    if (!(await ask(t("models.scan"), content, t("models.register")))) return;
    const done = { n: 0, failed: 0 };
    for (const { part } of list.ticked()) (await attempt(() => post("/models/install", { source: part.path, in_place: true }))) ? ++done.n : ++done.failed;
    if (done.n + done.failed) toast(t("models.bulk_done", { done: done.n, failed: done.failed }), { kind: done.failed ? "error" : "info" });
    await this.installs.read().catch(() => {});
    await store.refresh();
  }

  async #token() {
    const state = await attempt(() => get("/settings/hub-token"));
    if (!state) return;
    const input = h("input", { type: "password", autocomplete: "off" });
    const words = !state.set ? "token.none" : state.valid === null ? "token.unknown" : state.valid ? "token.valid" : "token.invalid";
    const answer = await dialog(t("models.token"), [h("p", { class: "quiet" }, t(words)), field(t("token.label"), input),
      h("p", {}, h("a", { href: "https://huggingface.co/settings/tokens", target: "_blank", rel: "noreferrer" }, t("token.where")))],
      { buttons: [{ value: "delete", label: t("token.delete") }, { value: "save", label: t("token.save"), primary: true }] });
    if (answer === "save" && input.value) await attempt(() => call("PUT", "/settings/hub-token", { token: input.value }));
    if (answer === "delete") await attempt(() => remove("/settings/hub-token"));
  }
}
