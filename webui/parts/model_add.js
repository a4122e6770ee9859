// Ways to add a model: a repository, an address or a path; files of the hub to choose from; what lies in the model folders; starters.
import { call, get, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, t } from "../lib/text.js";
import { attempt, dialog, toast } from "./messages.js";
import { showOrphans } from "./model_orphans.js";
import { ask, sendDialog, sendEach } from "./sending.js";
import { tickList } from "./tick_list.js";

const REPOSITORY = /^[\w.-]+\/[\w.-]+$/;

export class ModelAdd {
  constructor(installs) {
    this.installs = installs;
    this.source = h("input", { placeholder: t("models.source_hint"), oninput: () => (this.look.hidden = !REPOSITORY.test(this.source.value.trim())) });
    this.inPlace = h("input", { type: "checkbox" });
    this.look = h("button", { type: "button", hidden: true, onclick: () => this.#chooseFiles() }, t("models.show_files"));
    this.starters = h("div", { class: "models" });
    this.reading = new Reading(() => attempt(() => get("/models/starter")), (starters) => this.#showStarters(starters?.items || []));
    this.element = h("div", { class: "page" }, h("h2", {}, t("models.add")),
      h("form", { class: "row", onsubmit: (e) => {
        e.preventDefault();
        this.#install(this.source.value.trim());
      } }, h("div", { class: "field long" }, field(t("models.source"), this.source)), h("label", { class: "tick" }, this.inPlace, t("models.in_place")),
        h("div", { class: "actions" }, h("button", {}, icon("download"), t("models.install")), this.look, h("button", { type: "button", onclick: () => this.#scan() }, t("models.scan")),
          store.can("/models/orphans/delete") ? h("button", { type: "button", onclick: () => showOrphans() }, t("models.orphans")) : null,
          h("button", { type: "button", onclick: () => this.#token() }, t("models.token")))),
      installs.element, h("h2", {}, t("models.starters")), this.starters);
  }

  shown = () => this.reading.read();

  #showStarters(starters) {
    replace(this.starters, starters.map((s) => {
      const present = s.parts.filter((p) => p.present).length, lacking = s.parts.length - present;
      return h("article", { class: "card" }, h("h3", {}, s.name), h("p", { class: "quiet" }, s.summary),
        h("p", { class: "quiet" }, [s.bytes_to_fetch ? bytes(s.bytes_to_fetch) : "", ...new Set(s.parts.map((p) => p.license))].filter(Boolean).join(" · ")),
        lacking && present ? h("p", { class: "quiet" }, t("models.parts", { lacking, present })) : null,
        lacking ? h("button", { onclick: () => this.#install(s.name) }, icon("download"), t("models.install")) : h("p", { class: "badge" }, t("models.installed")));
    }));
  }

  #send = (source) => post("/models/install", this.inPlace.checked ? { source, in_place: true } : { source });

  async #install(source) {
    const install = source ? await attempt(() => this.#send(source)) : null;
    if (install) this.#started(install);
  }

  #started(install) {
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
    const install = await ask(repository, [h("p", { class: "quiet" }, notes), list.element], t("models.install_chosen"), () => {
      const paths = list.ticked().map((i) => i.text);
      return this.#send(paths.length ? `${repository}::${paths.join("+")}` : repository);
    });
    if (install) this.#started(install);
  }

  // What lies in the model folders; those that are ticked are registered where they are.
  async #scan() {
    const found = await attempt(() => post("/models/scan", {}));
    if (!found) return;
    const list = tickList(found.items.map((part) => ({ part, text: part.path, checked: !part.installed && !part.problem, disabled: part.installed,
      detail: [t(`type.${part.type}`), part.variant, part.installed ? t("models.installed") : part.problem].filter(Boolean).join(" · ") })));
    if (!found.items.length) {
      await dialog(t("models.scan"), h("p", {}, t("models.scanned_none")));
      return;
    }
    const taken = new Set(); // those that the server has, if it refused others
    const register = async () => {
      const done = await sendEach(list.ticked().filter(({ part }) => !taken.has(part)), ({ part }) => post("/models/install", { source: part.path, in_place: true }).then(() => taken.add(part)));
      if (done) toast(t("models.bulk_done", { done, failed: 0 }));
    };
    await ask(t("models.scan"), list.element, t("models.register"), register);
    await this.installs.read().catch(() => {});
    await store.readModels().catch(() => {});
  }

  async #token() {
    const state = await attempt(() => get("/settings/hub-token"));
    if (!state) return;
    const input = h("input", { type: "password", autocomplete: "off", required: true });
    const words = !state.set ? "token.none" : state.valid === null ? "token.unknown" : state.valid ? "token.valid" : "token.invalid";
    await sendDialog(t("models.token"), [h("p", { class: "quiet" }, t(words)), field(t("token.label"), input),
      h("p", {}, h("a", { href: "https://huggingface.co/settings/tokens", target: "_blank", rel: "noreferrer" }, t("token.where")))],
      [...(state.set ? [{ label: t("token.delete"), send: () => remove("/settings/hub-token"), danger: true }] : []),
        { label: t("token.save"), send: () => call("PUT", "/settings/hub-token", { token: input.value }), primary: true }]);
  }
}
