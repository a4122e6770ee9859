// Prompts for parts of the image, each with a rectangle in pixels.
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";

const MOST = 16;
const SIDES = ["x", "y", "w", "h"];

export class RegionList {
  // `read()` gives the list [{prompt, x, y, w, h}], `write(list)` keeps another one.
  constructor(read, write) {
    this.read = read;
    this.write = write;
    this.list = h("div", { class: "regions" });
    this.add = h("button", { type: "button", class: "chip", onclick: () => {
      this.#keep([...this.read(), { prompt: "", x: 0, y: 0, w: "", h: "" }]);
      this.list.querySelector("fieldset:last-child textarea").focus();
    } }, t("region.add"));
    this.element = h("div", {}, h("p", { class: "quiet" }, t("region.hint")), this.list, this.add);
    this.show();
  }

  // As a job request has them. A region without a prompt or with a side missing is not complete yet, and is left out.
  request() {
    const complete = (r) => r.prompt.trim() && SIDES.every((side) => r[side] !== "" && r[side] !== undefined) && r.w > 0 && r.h > 0;
    return this.read().filter(complete).map((r) => ({ prompt: r.prompt, box: SIDES.map((side) => parseInt(r[side], 10)) }));
  }

  show() {
    this.add.disabled = this.read().length >= MOST;
    replace(this.list, this.read().map((region, index) => {
      const change = (name) => (event) => {
        region[name] = event.target.value;
        this.write(this.read());
      };
      const number = index + 1;
      const side = (name) => field(t(`region.${name}`), h("input", { type: "number", inputmode: "numeric", min: name === "w" || name === "h" ? 1 : 0,
        step: 1, value: region[name] ?? "", oninput: change(name) }));
      return h("fieldset", {}, h("legend", {}, t("region.title", { number })),
        field(t("region.prompt"), h("textarea", { rows: 1, value: region.prompt, oninput: change("prompt") }), { wide: true }),
        h("div", { class: "row" }, SIDES.map(side),
          h("button", { type: "button", class: "plain", "aria-label": t("region.remove", { number }), title: t("region.remove", { number }),
            onclick: () => this.#keep(this.read().filter((r) => r !== region)) }, icon("close"))));
    }));
  }

  #keep(list) {
    this.write(list);
    this.show();
  }
}
