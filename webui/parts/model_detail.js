// Everything about one model: what the file is, what people wrote about it, its defaults, and what can be done with it.
import { get, patch, post, upload } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { inTurn } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, t } from "../lib/text.js";
import { attempt, dialog, toast } from "./messages.js";
import { changePath, relatedModels } from "./model_links.js";
import { sendChanges } from "./sending.js";

const DEFAULTS = { main: ["steps", "guidance", "width", "height"], lora: ["lora_weight"] };
const PARTS = ["vae", "text_encoder", "tokenizer"];
const WHOLE = ["steps", "width", "height"];

const cover = (model) => (model.cover_asset ? `/api/v1/assets/${model.cover_asset}/thumb` : "");
export const coverOf = (model) => (cover(model) ? h("img", { class: "cover", src: cover(model), alt: "" }) : null);

async function dataUrlOf(url) {
  const blob = await (await fetch(url)).blob();
  return new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.readAsDataURL(blob);
  });
}

// The image of a data URL as a file; throws if it is none. The policy of the page forbids fetching data URLs.
function fileOfDataUrl(text) {
  const [, type, data] = text.match(/^data:(image\/[\w+.-]+);base64,(.+)$/);
  return new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], "cover", { type });
}

class ModelDetail {
  #oneByOne = inTurn();

  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
    this.body = h("div", { class: "form" });
    this.#draw();
  }

  // `values` may be a function: it is called when it is sent. Throws what the server refuses.
  #send = (values) => this.#oneByOne(async () => {
    this.#take(await patch(`/models/${this.model.key}`, typeof values === "function" ? values() : values));
    return true;
  });

  // Whether the server has taken it.
  #change = (values) => attempt(() => this.#send(values));

  #draw() {
    const { model } = this;
    const link = model.source?.kind === "hf" || /^[\w.-]+\/[\w.-]+$/.test(model.source?.ref || "") ? `https://huggingface.co/${model.source.ref}` : "";
    const facts = { type: t(`type.${model.type}`), variant: model.variant || model.family, format: [model.format, model.quant].filter(Boolean).join(", "),
      bytes: model.bytes ? bytes(model.bytes) : "", path: model.path, license: model.license, sha256: model.sha256 };
    replace(this.body, this.#cover(),
      h("dl", {}, Object.entries(facts).filter(([, v]) => v).map(([name, value]) => [h("dt", {}, t(`model_fact.${name}`)), h("dd", {}, value)]),
        link ? [h("dt", {}, t("model_fact.source")), h("dd", {}, h("a", { href: link, target: "_blank", rel: "noreferrer" }, model.source.ref))] : null),
      this.#words(), this.#defaults(), this.#parts(), this.#related(), this.#fit(),
      h("div", { class: "actions" },
        this.#job("model_detail.verify", () => post("/models/verify", { keys: [model.key] })),
        h("button", { onclick: () => attempt(async () => {
          const found = await this.#oneByOne(() => post(`/models/${model.key}/identify`));
          this.model = { ...this.model, ...found };
          toast(t("model_detail.identified", { type: t(`type.${this.model.type}`), variant: this.model.variant || this.model.family }));
          this.changed();
          this.#draw();
        }) }, t("model_detail.identify")),
        h("button", { onclick: () => this.#export() }, t("model_detail.export")), this.#import()),
      model.type === "main" ? this.#convert() : null,
      store.can("/models/{key}/relocate") ? changePath(model, (now) => {
        this.#take(now);
        this.#draw();
      }) : null);
  }

  #take(model) {
    this.model = model;
    this.changed();
  }

  #related() {
    return store.can("/models/{key}/related/{other}") ? relatedModels({ model: () => this.model, oneByOne: this.#oneByOne, changed: (now) => this.#take(now), open: (other) => {
      this.body.closest("dialog").close();
      openModel(other, this.changed);
    } }) : null;
  }

  #job(label, send) {
    return h("button", { onclick: () => attempt(async () => {
      store.add(await send());
      toast(t("model_detail.in_queue"));
    }) }, t(label));
  }

  #cover() {
    const file = h("input", { type: "file", accept: "image/*", class: "unseen", "aria-label": t("model_detail.cover"), onchange: async () => {
      const asset = await attempt(() => upload(file.files[0]));
      if (asset && (await this.#change({ cover_asset: asset.id }))) this.#draw();
    } });
    return h("div", { class: "actions" }, coverOf(this.model), h("label", { class: "button" }, t("model_detail.cover"), file),
      this.model.cover_asset ? h("button", { onclick: async () => (await this.#change({ cover_asset: null })) && this.#draw() }, t("model_detail.no_cover")) : null);
  }

  #words() {
    const name = sendChanges(h("input"), (typed) => this.#send({ name: typed.trim() }), () => this.model.name);
    const notes = sendChanges(h("textarea", { rows: 2 }), (description) => this.#send({ description }), () => this.model.description);
    const list = h("div", { class: "chips" });
    const show = () => replace(list, this.model.trigger_phrases.map((phrase) => h("button", { class: "chip", "aria-label": t("model_detail.remove_trigger", { phrase }),
      onclick: async () => (await this.#change(() => ({ trigger_phrases: this.model.trigger_phrases.filter((p) => p !== phrase) }))) && show() }, phrase, icon("close"))));
    const add = h("input", { onkeydown: async (event) => {
      if (event.key !== "Enter" || !add.value.trim()) return;
      const phrase = add.value.trim();
      if (this.model.trigger_phrases.includes(phrase)) toast(t("model_detail.same_trigger"), { kind: "error" });
      else if ((await this.#change(() => ({ trigger_phrases: [...this.model.trigger_phrases, phrase] }))) && add.value.trim() === phrase) add.value = "";
      show();
    } });
    show();
    return [field(t("model_detail.name"), name), field(t("model_detail.notes"), notes),
      this.model.type === "lora" ? [field(t("model_detail.triggers"), add, { hint: t("model_detail.triggers_hint") }), list] : null];
  }

  #defaults() {
    const names = DEFAULTS[this.model.type] || [];
    return names.length ? h("fieldset", {}, h("legend", {}, t("model_detail.defaults")), h("div", { class: "row" }, names.map((name) => {
      const input = h("input", { type: "number", step: WHOLE.includes(name) ? 1 : 0.05, placeholder: t("field.default") });
      const send = (value) => this.#send({ defaults: { [name]: value === "" ? null : Number(value) } });
      return field(t(`field.${name}`), sendChanges(input, send, () => this.model.defaults?.[name]));
    }))) : null;
  }

  // Which other files a model uses, where there is a choice.
  #parts() {
    if (this.model.type !== "main") return null;
    const choices = PARTS.filter((part) => store.models.some((m) => m.type === part)).map((part) => {
      const select = h("select", {}, h("option", { value: "" }, t("field.default")), store.models.filter((m) => m.type === part).map((m) => h("option", { value: m.key }, m.name)));
      return field(t(`type.${part}`), sendChanges(select, (key) => this.#send({ components: { [part]: key || null } }), () => this.model.components?.[part]));
    });
    return choices.length ? h("div", { class: "row" }, choices) : null;
  }

  #fit() {
    const line = h("p", { class: "quiet" });
    const show = ({ fits, offload, ways = [] }) => {
      const way = ways.find((w) => w.offload === offload) ?? ways.at(-1); // the last one needs least
      const numbers = way ? t("model_detail.memory", { needed: bytes(way.peak), limit: bytes(way.available) }) : "";
      line.textContent = [t(fits ? "model_detail.fits" : "model_detail.too_large"), numbers].filter(Boolean).join(" ");
    };
    if (this.model.type === "main") get(`/models/${this.model.key}/fit`).then(show).catch(() => {});
    return line;
  }

  #convert() {
    const quant = h("select", { "aria-label": t("model_detail.quant") }, ["q8_0", "q4_0", "fp8", "int8"].map((q) => h("option", { value: q }, q)));
    return h("details", {}, h("summary", {}, t("model_detail.convert")), h("div", { class: "row" }, field(t("model_detail.quant"), quant),
      this.#job("model_detail.convert_now", () => post(`/models/${this.model.key}/convert`, { quant: quant.value, name: `${this.model.name}-${quant.value}` }))));
  }

  // ---- settings as a file ----

  async #export() {
    const { name, description, defaults, trigger_phrases, source } = this.model;
    const json = { name, description, source_url: source?.ref || "", default_settings: defaults || {}, trigger_phrases };
    if (this.model.cover_asset) json.cover_image = await dataUrlOf(cover(this.model));
    const file = URL.createObjectURL(new Blob([JSON.stringify(json, null, 2)], { type: "application/json" }));
    h("a", { href: file, download: `${name}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(file), 60_000);
  }

  #import() {
    const file = h("input", { type: "file", accept: ".json", class: "unseen", "aria-label": t("model_detail.import"), onchange: async () => {
      const left = [];
      const values = {};
      try {
        const known = { description: "description", default_settings: "defaults", trigger_phrases: "trigger_phrases" };
        for (const [name, value] of Object.entries(JSON.parse(await file.files[0].text())))
          if (name in known) values[known[name]] = value;
          else if (name === "cover_image" && value) {
            try {
              values.cover_asset = (await upload(fileOfDataUrl(value))).id;
            } catch {
              left.push(name);
            }
          } else if (value && !["name", "source_url"].includes(name)) left.push(name);
      } catch {
        toast(t("model_detail.not_read"), { kind: "error" });
        return;
      }
      if (!(await this.#change(values))) return;
      toast(left.length ? t("model_detail.imported_partly", { names: left.join(", ") }) : t("model_detail.imported"));
      this.#draw();
    } });
    return h("label", { class: "button" }, t("model_detail.import"), file);
  }
}

// Read again: the list may be older than the last change.
export async function openModel(known, changed) {
  const model = await get(`/models/${known.key}`).catch(() => known);
  const detail = new ModelDetail(model, changed);
  await dialog(model.name, detail.body, { wide: true });
}
