// Characters, places, objects and styles that should look the same in every image. "@" and the trigger in a prompt uses one.
import { get, patch, post, remove } from "../lib/api.js";
import { field, h, redraw, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { sendTo } from "../parts/image_actions.js";
import { imageInput } from "../parts/image_input.js";
import { attempt, dialog, toast } from "../parts/messages.js";
import { ask, sendChanges } from "../parts/sending.js";

const TYPES = ["character", "location", "object", "style"];
const thumbOf = (asset) => `/api/v1/assets/${asset}/thumb`;
const typeChoice = (value) => {
  const select = h("select", {}, TYPES.map((type) => h("option", { value: type }, t(`element.${type}`))));
  select.value = value;
  return select;
};

export class ElementsTab {
  constructor() {
    this.groups = h("div", { class: "groups" });
    this.search = h("input", { type: "search", placeholder: t("element.search"), "aria-label": t("element.search"), oninput: () => this.show() });
    this.element = h("div", { class: "page" }, h("p", { class: "quiet" }, t("element.intro")),
      h("div", { class: "toolbar" }, this.search, h("button", { class: "primary", onclick: () => this.#create() }, icon("add"), t("element.new"))), this.groups);
    store.on("elements", () => this.show());
    this.show();
  }

  show() {
    const word = this.search.value.toLowerCase();
    const found = store.elements.filter((e) => `${e.name} ${e.trigger} ${e.description}`.toLowerCase().includes(word));
    replace(this.groups, found.length ? TYPES.map((type) => {
      const some = found.filter((e) => e.type === type);
      return some.length ? h("section", {}, h("h2", {}, t(`element.${type}`)), some.map((e) => this.#card(e))) : null;
    }) : h("div", { class: "empty quiet" }, icon("elements"), h("p", {}, t(store.elements.length ? "element.nothing" : "element.none"))));
  }

  #card(element) {
    const button = (label, run, more) => h("button", { onclick: run, ...more }, t(label));
    return h("article", { class: "card" },
      h("div", { class: "card-head" }, element.thumb_url ? h("img", { class: "cover", src: element.thumb_url, alt: "" }) : h("span", { class: "cover no-cover" }, icon("elements")),
        h("div", {}, h("h3", {}, element.name), h("p", { class: "facts" }, h("span", {}, element.trigger), element.project_id ? null : h("span", {}, t("element.shared"))))),
      element.description ? h("p", { class: "clamped" }, element.description) : null,
      h("div", { class: "actions" }, button("element.use", () => sendTo("generate", { append: element.trigger })),
        button("element.edit", () => this.#edit(element), { "aria-label": t("element.edit_named", { name: element.name }) })));
  }

  async #create() {
    const name = h("input", { required: true }), description = h("textarea", { rows: 2 }), type = typeChoice("character");
    const shared = h("input", { type: "checkbox", checked: store.project === "default", disabled: store.project === "default" });
    const content = [field(t("element.name"), name), field(t("element.type"), type), field(t("element.description"), description, { hint: t("element.description_hint") }),
      h("label", {}, shared, t("element.share"))];
    const element = await ask(t("element.new"), content, t("element.create"), () => post(`/projects/${shared.checked ? "default" : store.project}/elements`,
      { name: name.value.trim(), type: type.value, description: description.value.trim() }));
    if (!element) return;
    await store.readElements().catch(() => {});
    this.#edit(element);
  }

  async #edit(first) {
    let element = first;
    const images = h("ul", { class: "references" });
    let stores = 0; // changes that the server does not have yet
    const show = () => this.#showImages(images, element, (order) => attempt(() => change({ images: order })), takeAway);
    const send = async (call) => {
      ++stores;
      try {
        element = await store.changeElements(call);
      } finally {
        if (--stores === 0) show(); // what was refused is undone
      }
    };
    const change = (values) => send(() => patch(`/elements/${element.id}`, values));
    const takeAway = (asset) => attempt(() => send(async () => {
      await remove(`/elements/${element.id}/images/${asset}`);
      return get(`/elements/${element.id}`);
    }));
    const add = imageInput((picture) => attempt(() => send(() => post(`/elements/${element.id}/images`, { asset_id: `ast_${picture.asset.replace("asset:", "")}` }))), { several: true });
    const text = (name, control) =>
      sendChanges(control, (value) => change({ [name]: control.type === "number" ? Number(value) : value.trim() }), () => element[name]);
    const type = text("type", typeChoice(element.type));
    const changedElsewhere = () => {
      const now = store.elements.find((e) => e.id === element.id);
      if (!now || now.images.join() === element.images.join()) return;
      element = now;
      show();
    };
    store.addEventListener("elements", changedElsewhere); // an image that was generated for it
    show();
    await dialog(element.name, h("div", { class: "form" },
      h("div", { class: "row" }, field(t("element.name"), text("name", h("input"))), field(t("element.trigger"), text("trigger", h("input"))), field(t("element.type"), type)),
      field(t("element.description"), text("description", h("textarea", { rows: 3 })), { hint: t("element.description_hint") }),
      h("div", { class: "row" }, field(t("element.max_refs"), text("max_refs", h("input", { type: "number", min: 0, max: 16 }))), this.#lora(() => element, change)),
      h("fieldset", {}, h("legend", {}, t("element.images")), images, add),
      h("div", { class: "actions" },
        h("button", { onclick: () => attempt(async () => {
          store.add(await post(`/elements/${element.id}/visualize`, { count: 1 }));
          toast(t("model_detail.in_queue"));
        }) }, icon("generate"), t("element.visualize")),
        h("button", { class: "danger", onclick: () => this.#delete(element, images) }, icon("trash"), t("element.delete")))), { wide: true });
    store.removeEventListener("elements", changedElsewhere);
    await store.readElements().catch(() => {});
  }

  // `reorder(images)` and `takeAway(asset)` send a change.
  #showImages(list, element, reorder, takeAway) {
    redraw(list, element.images.map((asset, i) => h("li", {}, h("img", { src: thumbOf(asset), alt: t("references.nth", { n: i + 1 }) }),
      h("span", {}, i === 0 ? t("element.main_image") : ""),
      i > 0 ? h("button", { class: "plain", "aria-label": t("references.up", { n: i + 1 }), title: t("references.up", { n: i + 1 }), "data-key": `${asset}-up`, onclick: () => {
        const images = [...element.images];
        images.splice(i - 1, 0, ...images.splice(i, 1));
        this.#showImages(list, { ...element, images }, reorder, takeAway); // at once
        reorder(images);
      } }, icon("up")) : null,
      h("button", { class: "plain", "aria-label": t("references.remove", { n: i + 1 }), title: t("references.remove", { n: i + 1 }), "data-key": `${asset}-remove`, onclick: () => takeAway(asset) }, icon("close")))));
  }

  // One LoRA that goes with the element.
  #lora(element, change) {
    const names = [...new Set([...store.loras, ...(element().loras || [])].map((l) => l.name))];
    if (!names.length) return null;
    const select = h("select", {}, h("option", { value: "" }, t("element.no_lora")), names.map((name) => h("option", { value: name }, name)));
    return field(t("element.lora"), sendChanges(select, (name) => change({ loras: name ? [{ name }] : [] }), () => element().loras?.[0]?.name));
  }

  async #delete(element, inside) {
    const question = h("p", {}, t("element.delete_question", { name: element.name }));
    if (!(await ask(t("element.delete"), question, t("element.delete"), () => remove(`/elements/${element.id}`)))) return;
    inside.closest("dialog")?.close();
    await store.readElements().catch(() => {});
  }
}
