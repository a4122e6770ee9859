// One part of the finished image that is generated once more, enlarged: rectangles, the white area of a mask, or both.
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";
import { imageInput } from "./image_input.js";

export class DetailPass {
  // `read()` gives {boxes, strength, mask: {asset, thumb} or null}, `write(value)` keeps another one.
  constructor(read, write) {
    this.read = read;
    this.write = write;
    const change = (name) => (event) => this.write({ ...this.read(), [name]: event.target.value });
    this.boxes = h("input", { placeholder: "420,180,160,160", oninput: change("boxes") });
    this.strength = h("input", { type: "number", inputmode: "decimal", min: 0, max: 1, step: 0.05, placeholder: "0.4", oninput: change("strength") });
    this.mask = h("div", { class: "image-prompts" });
    this.element = h("fieldset", {}, h("legend", {}, t("detail.title")), h("p", { class: "quiet" }, t("detail.hint")),
      h("div", { class: "row" }, field(t("detail.boxes"), this.boxes, { hint: t("detail.boxes_hint") }), field(t("detail.strength"), this.strength)), this.mask);
    this.show();
  }

  // As a job request has it; empty if no part is selected.
  request() {
    const { boxes, strength, mask } = this.read();
    const list = boxes.split(/[\s;]+/).filter(Boolean);
    if (!list.length && !mask) return {};
    const request = {};
    if (list.length) request.detail_box = list;
    if (mask) request.detail_mask = mask.asset;
    if (strength !== "") request.detail_strength = parseFloat(strength);
    return request;
  }

  show() {
    const { boxes, strength, mask } = this.read();
    this.boxes.value = boxes;
    this.strength.value = strength;
    const keep = (picture) => {
      this.write({ ...this.read(), mask: picture });
      this.show();
    };
    const remove = t("detail.remove_mask");
    replace(this.mask, mask
      ? h("div", { class: "row" }, h("img", { src: mask.thumb, alt: t("detail.mask") }), h("span", {}, t("detail.mask")),
        h("button", { type: "button", class: "plain", "aria-label": remove, title: remove, onclick: () => keep(null) }, icon("close")))
      : [h("p", { class: "quiet" }, t("detail.mask_hint")), imageInput(({ asset, thumb }) => keep({ asset, thumb }))]);
  }
}
