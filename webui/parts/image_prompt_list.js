// Images as prompts: each has a strength and a part of the steps in which it counts. One adapter turns all of them into prompts.
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { imageInput, sayFull } from "./image_input.js";

const MOST = 16;
const NUMBERS = { strength: { max: 2, usual: 1 }, from: { max: 1, usual: 0 }, to: { max: 1, usual: 1 } };

export class ImagePromptList {
  // `read()` gives {adapter, images: [{asset, thumb, strength, from, to}]}, `write(value)` keeps another one.
  constructor(read, write) {
    this.read = read;
    this.write = write;
    this.list = h("div", { class: "image-prompts" });
    this.adapter = h("select", { onchange: () => this.write({ ...this.read(), adapter: this.adapter.value }) });
    this.input = imageInput((picture) => {
      if (this.read().images.length >= MOST) sayFull(MOST);
      else this.#keep([...this.read().images, { asset: picture.asset, thumb: picture.thumb, strength: "", from: "", to: "" }]);
    }, { several: true });
    this.element = h("fieldset", {}, h("legend", {}, t("image_prompt.title")), h("p", { class: "quiet" }, t("image_prompt.hint")),
      field(t("image_prompt.adapter"), this.adapter, { wide: true }), this.list, this.input);
    store.on("info", () => this.show());
    this.show();
  }

  // As a job request has them. What is empty is left to the server.
  request() {
    const { adapter, images } = this.read();
    if (!images.length) return {};
    const given = (image) => Object.fromEntries(Object.keys(NUMBERS).filter((name) => image[name] !== "" && image[name] !== undefined)
      .map((name) => [name, parseFloat(image[name])]));
    const request = { image_prompts: images.map((image) => ({ image: image.asset, ...given(image) })) };
    if (adapter) request.image_prompt_adapter = adapter;
    return request;
  }

  show() {
    const { adapter, images } = this.read();
    const names = store.models.filter((m) => m.type === "image_prompt").map((m) => m.name);
    if (adapter && !names.includes(adapter)) names.push(adapter); // kept with the draft, or a checkpoint of a run
    replace(this.adapter, [h("option", { value: "" }, t(names.length ? "image_prompt.choose" : "image_prompt.none")),
      ...names.map((name) => h("option", { value: name }, name))]);
    this.adapter.value = adapter;
    this.input.hidden = images.length >= MOST;
    replace(this.list, images.map((image, index) => {
      const n = index + 1;
      const change = (name) => (event) => {
        image[name] = event.target.value;
        this.write(this.read());
      };
      const number = (name) => field(t(`image_prompt.${name}`), h("input", { type: "number", inputmode: "decimal", min: 0, max: NUMBERS[name].max,
        step: 0.05, placeholder: NUMBERS[name].usual, value: image[name] ?? "", oninput: change(name) }));
      const remove = t("image_prompt.remove", { n });
      return h("fieldset", {}, h("legend", {}, t("image_prompt.nth", { n })), h("div", { class: "row" },
        h("img", { src: image.thumb, alt: t("image_prompt.nth", { n }) }), Object.keys(NUMBERS).map(number),
        h("button", { type: "button", class: "plain", "aria-label": remove, title: remove,
          onclick: () => this.#keep(this.read().images.filter((other) => other !== image)) }, icon("close"))));
    }));
  }

  #keep(images) {
    this.write({ ...this.read(), images });
    this.show();
  }
}
