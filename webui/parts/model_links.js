// Of an open model: the models that belong to it, and the path of a file that was moved.
import { call, post } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt, toast } from "./messages.js";
import { SendForm } from "./sending.js";

// `model()` is the model as it is now; `oneByOne(call)` sends one change of it after the other; `changed(model)` takes it from the
// server; `open(model)` shows another one.
export function relatedModels({ model, oneByOne, changed, open }) {
  const list = h("ul", { class: "files" });
  const choice = h("select");
  const named = (key) => store.models.find((m) => m.key === key);
  const change = (method, key) => attempt(async () => {
    changed(await oneByOne(() => call(method, `/models/${model().key}/related/${key}`)));
    show();
  });
  const show = () => {
    const related = (model().related || []).map(named).filter(Boolean);
    replace(list, related.map((other) => h("li", {},
      h("button", { type: "button", class: "chip", onclick: () => open(other) }, other.name), h("span", { class: "quiet" }, t(`type.${other.type}`)),
      h("button", { type: "button", class: "plain", "aria-label": t("related.remove", { name: other.name }), title: t("related.remove", { name: other.name }), onclick: () => change("DELETE", other.key) }, icon("close")))));
    const others = store.models.filter((m) => m.key && m.key !== model().key && !related.includes(m));
    replace(choice, others.map((m) => h("option", { value: m.key }, `${m.name} (${t(`type.${m.type}`)})`)));
    adding.hidden = !others.length;
    list.hidden = !related.length;
    element.hidden = !others.length && !related.length;
  };
  const adding = h("div", { class: "row" }, field(t("related.add"), choice), h("button", { type: "button", onclick: () => change("PUT", choice.value) }, icon("add"), t("related.link")));
  const element = h("fieldset", {}, h("legend", {}, t("related.title")), list, adding);
  show();
  return element;
}

export function changePath(model, changed) {
  const path = h("input", { value: model.path, spellcheck: "false" });
  const send = () => post(`/models/${model.key}/relocate`, { path: path.value.trim() });
  const done = (now) => {
    changed(now);
    toast(t("path.changed"));
  };
  const form = new SendForm(h("div", { class: "row" }, h("div", { class: "field long" }, field(t("path.label"), path, { hint: t("path.hint") }))),
    [{ label: t("path.change"), send, primary: true }], { done });
  return h("details", { open: model.state === "missing" }, h("summary", {}, t("path.title")),
    form.element);
}
