// What helps with a prompt: earlier ones, and templates that it is put into.
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";
import { addTemplates, allTemplates, applyTemplate, ownTemplates, readTemplates, removeTemplate, writeTemplates } from "../lib/templates.js";
import { dialog, toast } from "./messages.js";

// Asks for one of the earlier prompts; "" if none is chosen.
export async function choosePrompt(prompts) {
  const list = h("div", { class: "choices" });
  let chosen = "";
  const show = () => {
    const word = search.value.toLowerCase();
    const found = [...prompts].reverse().filter((p) => p.toLowerCase().includes(word));
    replace(list, found.length ? found.map((p) => h("button", { class: "plain", onclick: () => {
      chosen = p;
      list.closest("dialog").close();
    } }, p)) : h("p", { class: "quiet" }, t("history.none")));
  };
  const search = h("input", { type: "search", placeholder: t("history.search"), "aria-label": t("history.search"), oninput: show });
  show();
  await dialog(t("history.title"), h("div", { class: "form" }, search, list));
  return chosen;
}

// The person's own templates: write, remove, import, export.
async function editTemplates() {
  const list = h("ul", { class: "checkpoints" });
  const name = h("input", { required: true }), prompt = h("textarea", { rows: 2, required: true, placeholder: "{prompt}" }), negative = h("input");
  const show = () => replace(list, ownTemplates().map((item) => h("li", {}, h("div", { class: "what" }, h("strong", {}, item.name), h("p", { class: "quiet" }, item.prompt)),
    h("button", { class: "plain", "aria-label": t("template.remove", { name: item.name }), onclick: () => {
      removeTemplate(item.name);
      show();
    } }, icon("trash")))));
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    addTemplates([{ name: name.value.trim(), prompt: prompt.value, negative: negative.value }]);
    form.reset();
    show();
  } }, field(t("template.name"), name), field(t("template.text"), prompt, { hint: t("template.hint") }), field(t("field.negative"), negative),
    h("button", {}, icon("add"), t("template.add")));
  const file = h("input", { type: "file", accept: ".csv,.json", class: "unseen", "aria-label": t("template.import"), onchange: async () => {
    let items = [];
    try {
      items = readTemplates(await file.files[0].text());
    } catch {
      // not JSON: nothing is read
    }
    addTemplates(items);
    toast(items.length ? t("template.imported", { n: items.length }) : t("template.not_read"), { kind: items.length ? "info" : "error" });
    show();
  } });
  const save = () => h("a", { href: URL.createObjectURL(new Blob([writeTemplates(ownTemplates())], { type: "text/csv" })), download: "templates.csv" }).click();
  show();
  await dialog(t("template.title"), h("div", { class: "form" }, list, form,
    h("div", { class: "actions" }, h("label", { class: "button" }, t("template.import"), file), h("button", { onclick: save }, t("template.export")))));
}

// A choice of templates for a form. `changed` is called when another one is chosen.
export class TemplateChoice {
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    this.select = h("select", { "data-name": "template", "aria-label": t("template.label"), onchange: () => this.#choose(this.select.value) });
    this.preview = h("p", { class: "quiet preview-text" });
    this.flat = h("button", { type: "button", class: "chip", onclick: () => this.#flatten() }, t("template.flatten"));
    this.element = h("div", { class: "toolbar" }, this.select,
      h("button", { type: "button", class: "chip", onclick: async () => {
        await editTemplates();
        this.show();
      } }, t("template.edit")), this.flat);
    this.show();
  }

  chosen = () => allTemplates().find((i) => i.name === this.form.draft.template);

  // Puts the template into a request.
  apply(request) {
    const template = this.chosen();
    if (!template) return;
    if (!template.isOwn) request.style = template.name;
    else {
      request.prompt = applyTemplate(template, request.prompt);
      if (template.negative && !this.form.draft.negative) request.negative = template.negative;
    }
  }

  show() {
    const name = this.chosen()?.name || "";
    replace(this.select, h("option", { value: "" }, t("template.none")), allTemplates().map((i) => h("option", { value: i.name }, i.name)));
    this.select.value = name;
    this.flat.hidden = !name;
    this.preview.textContent = name && this.form.draft.prompt.trim() ? applyTemplate(this.chosen(), this.form.draft.prompt) : "";
  }

  #choose(name) {
    this.changed({ template: name });
    this.show();
  }

  #flatten() {
    this.changed({ prompt: applyTemplate(this.chosen(), this.form.draft.prompt), template: "" });
    this.show();
  }
}
