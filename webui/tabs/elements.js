// Characters, places, objects and styles that should look the same in every image. "@" and the trigger in a prompt uses one.
import { patch, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { sendTo } from "../parts/image_actions.js";
import { imageInput } from "../parts/image_input.js";
import { ask, attempt, dialog, toast } from "../parts/messages.js";

const TYPES = ["character", "location", "object", "style"];
const thumbOf = (asset) => `/api/v1/assets/${asset}/thumb`;
const typeChoice = (value) => {
  const select = h("select", {}, TYPES.map((type) => h("option", { value: type }, t(`element.${type}`))));
  select.value = value;
  return select;
};

export class ElementsTab {
  constructor() {
    this.list = h("div", { class: "models" });
    this.search = h("input", { type: "search", placeholder: t("element.search"), "aria-label": t("element.search"), oninput: () => this.show() });
    this.element = h("div", { class: "page" }, h("p", { class: "quiet" }, t("element.intro")),
      h("div", { class: "toolbar" }, this.search, h("button", { class: "primary", onclick: () => this.#create() }, icon("add"), t("element.new"))), this.list);
    store.on("elements", () => this.show());
    this.show();
  }

  show() {
    const word = this.search.value.toLowerCase();
    const found = store.elements.filter((e) => `${e.name} ${e.trigger} ${e.description}`.toLowerCase().includes(word));
    replace(this.list, found.length ? found.map((e) => this.#card(e)) : h("p", { class: "quiet" }, t("element.none")));
  }

  #card(element) {
    const image = element.images?.[0];
    return h("article", { class: "card" }, image ? h("img", { class: "cover", src: thumbOf(image), alt: "" }) : null, h("h3", {}, element.name),
      h("p", { class: "quiet" }, `${t(`element.${element.type}`)} · ${element.trigger}${element.project_id ? "" : ` · ${t("element.shared")}`}`),
      element.description ? h("p", {}, element.description) : null,
      h("div", { class: "actions" }, h("button", { onclick: () => sendTo("generate", { append: element.trigger }) }, t("element.use")),
        h("button", { "aria-label": t("element.edit_named", { name: element.name }), onclick: () => this.#edit(element) }, t("element.edit"))));
  }

  async #create() {
    const name = h("input", { required: true }), description = h("textarea", { rows: 2 }), type = typeChoice("character");
    const shared = h("input", { type: "checkbox" });
    const content = [field(t("element.name"), name), field(t("element.type"), type), field(t("element.description"), description, { hint: t("element.description_hint") }),
      h("label", {}, shared, t("element.share"))];
    if (!(await ask(t("element.new"), content, t("element.create")))) return;
    const element = await attempt(() => post(shared.checked ? "/elements" : `/projects/${store.project}/elements`,
      { name: name.value.trim(), type: type.value, description: description.value.trim() }));
    if (!element) return;
    await store.readElements();
    this.#edit(element);
  }

  async #edit(first) {
    let element = first;
    const images = h("ul", { class: "references" });
    const change = async (values) => {
      const changed = await attempt(() => patch(`/elements/${element.id}`, values));
      if (changed) element = changed;
      await store.readElements();
    };
    const show = () => replace(images, (element.images || []).map((asset, i) => h("li", {}, h("img", { src: thumbOf(asset), alt: t("references.nth", { n: i + 1 }) }),
      h("span", {}, i === 0 ? t("element.main_image") : ""),
      i > 0 ? h("button", { class: "plain", "aria-label": t("references.up", { n: i + 1 }), onclick: async () => {
        const order = [...element.images];
        order.splice(i - 1, 0, ...order.splice(i, 1));
        await change({ images: order });
        show();
      } }, icon("up")) : null,
      h("button", { class: "plain", "aria-label": t("references.remove", { n: i + 1 }), onclick: async () => {
        const answer = await attempt(() => remove(`/elements/${element.id}/images/${asset}`));
        element = answer || { ...element, images: element.images.filter((a) => a !== asset) };
        await store.readElements();
        show();
      } }, icon("close")))));
    const add = imageInput(async (picture) => {
      const changed = await attempt(() => post(`/elements/${element.id}/images`, { asset_id: `ast_${picture.asset.replace("asset:", "")}` }));
      if (changed) element = changed;
      await store.readElements();
      show();
    }, { several: true });
    const name = h("input", { value: element.name, onchange: () => change({ name: name.value.trim() }) });
    const trigger = h("input", { value: element.trigger, onchange: async () => {
      await change({ trigger: trigger.value.trim() });
      trigger.value = element.trigger;
    } });
    const type = typeChoice(element.type);
    type.addEventListener("change", () => change({ type: type.value }));
    const description = h("textarea", { rows: 3, value: element.description, onchange: () => change({ description: description.value }) });
    const most = h("input", { type: "number", min: 0, max: 16, value: element.max_refs ?? 1, onchange: () => change({ max_refs: Number(most.value) }) });
    show();
    await dialog(element.name, h("div", { class: "form" }, h("div", { class: "row" }, field(t("element.name"), name), field(t("element.trigger"), trigger), field(t("element.type"), type)),
      field(t("element.description"), description, { hint: t("element.description_hint") }), field(t("element.max_refs"), most),
      h("fieldset", {}, h("legend", {}, t("element.images")), images, add),
      h("div", { class: "actions" },
        h("button", { onclick: () => attempt(async () => {
          store.add(await post(`/elements/${element.id}/visualize`, { count: 1 }));
          toast(t("model_detail.in_queue"));
        }) }, icon("generate"), t("element.visualize")),
        h("button", { class: "danger", onclick: () => this.#delete(element, images) }, icon("trash"), t("element.delete")))), { wide: true });
    await store.readElements();
  }

  async #delete(element, inside) {
    if (!(await ask(t("element.delete"), h("p", {}, t("element.delete_question", { name: element.name })), t("element.delete")))) return;
    await attempt(() => remove(`/elements/${element.id}`));
    inside.closest("dialog")?.close();
    await store.readElements();
  }
}
