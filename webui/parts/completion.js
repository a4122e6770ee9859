// Completion in a text area: after "@" a list of matching items opens at the text. Arrows choose, Enter or Tab takes, Escape closes.
import { h, newId, replace } from "../lib/dom.js";

const MOST = 8;
const PATTERN = /@([\p{L}\p{N}_-]*)$/u;

export class Completion {
  // `find(fragment)` returns items { label, detail, thumb, take() }; take() returns the text that replaces "@" and the fragment.
  constructor(area, find) {
    Object.assign(this, { area, find, items: [], at: 0 });
    this.list = h("ul", { class: "completion", role: "listbox", id: newId("completion"), hidden: true, "aria-label": "@" });
    this.element = h("div", { class: "completed" }, area, this.list);
    area.setAttribute("aria-autocomplete", "list");
    area.setAttribute("aria-controls", this.list.id);
    area.addEventListener("input", () => this.#look());
    area.addEventListener("keydown", (event) => this.#key(event));
    area.addEventListener("blur", () => this.#close());
  }

  #look() {
    const typed = this.area.value.slice(0, this.area.selectionStart).match(PATTERN);
    this.items = typed ? this.find(typed[1].toLowerCase()).slice(0, MOST) : [];
    this.typed = typed?.[0].length;
    this.at = 0;
    this.items.length ? this.#show() : this.#close();
  }

  #show() {
    this.list.hidden = false;
    replace(this.list, this.items.map((item, i) => h("li", { role: "option", id: `${this.list.id}-${i}`, "aria-selected": String(i === this.at),
      onpointerdown: (event) => {
        event.preventDefault(); // the text area keeps the focus
        this.#take(i);
      } }, item.thumb ? h("img", { src: item.thumb, alt: "" }) : null, h("span", {}, item.label), h("span", { class: "quiet one-line" }, item.detail))));
    this.area.setAttribute("aria-activedescendant", `${this.list.id}-${this.at}`);
  }

  #close() {
    this.items = [];
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
  }

  #take(i) {
    const { area } = this;
    const end = area.selectionStart;
    area.setRangeText(this.items[i].take(), end - this.typed, end, "end");
    this.#close();
    area.dispatchEvent(new Event("input", { bubbles: true }));
    this.#close(); // a trigger would open the list again
  }

  #key(event) {
    if (!this.items.length || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      this.at = (this.at + step + this.items.length) % this.items.length;
      this.#show();
    } else if (event.key === "Enter" || event.key === "Tab") this.#take(this.at);
    else if (event.key === "Escape") this.#close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
