// A list with tick boxes and a search field. Items: { text, detail, checked, disabled }. `changed` is called when ticks change.
import { h } from "../lib/dom.js";
import { t } from "../lib/text.js";

export function tickList(items, changed = () => {}) {
  const rows = items.map((item) => {
    const box = h("input", { type: "checkbox", checked: item.checked, disabled: item.disabled, onchange: changed });
    return { item, box, row: h("li", {}, h("label", {}, box, h("span", {}, `${item.text} `, h("span", { class: "quiet" }, item.detail)))) };
  });
  const search = h("input", { type: "search", placeholder: t("models.filter_files"), "aria-label": t("models.filter_files"), oninput: () => {
    for (const { item, row } of rows) row.hidden = !item.text.toLowerCase().includes(search.value.toLowerCase());
  } });
  const all = (checked) => h("button", { type: "button", class: "chip", onclick: () => {
    for (const { box, row } of rows) if (!box.disabled && !row.hidden) box.checked = checked;
    changed();
  } }, t(checked ? "models.tick_all" : "models.tick_none"));
  const keep = (event) => event.key === "Enter" && event.target.matches("input") && event.preventDefault(); // it would send the form around the list
  const element = h("div", { class: "form", onkeydown: keep }, h("div", { class: "toolbar" }, search, all(true), all(false)), h("ul", { class: "files ticks" }, rows.map((r) => r.row)));
  return { element, ticked: () => rows.filter(({ box }) => box.checked && !box.disabled).map(({ item }) => item) };
}
