// Changes an image by words: references in an order that the prompt can refer to ("image 2").
import { h, redraw } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { dropTarget, imageInput, sayFull, takePasted } from "../parts/image_input.js";
import { Maker } from "../parts/maker.js";
import { RequestForm } from "../parts/request_form.js";

class References {
  constructor(changed) {
    this.pictures = readDraft("references", { pictures: [] }).pictures;
    this.changed = changed;
    this.list = h("ol", { class: "references" });
    this.element = h("fieldset", {}, h("legend", {}, t("references.title")), this.list, imageInput((p) => this.add(p), { several: true }));
    this.#show();
  }

  add(picture) {
    const most = store.info.limits.references;
    if (this.pictures.length >= most) return sayFull(most);
    this.pictures.push(picture);
    this.#keep();
  }

  #move(from, to) {
    const [picture] = this.pictures.splice(from, 1);
    this.pictures.splice(to, 0, picture);
    this.#keep();
  }

  #keep() {
    writeDraft("references", { pictures: this.pictures });
    this.#show();
    this.changed();
  }

  #show() {
    redraw(this.list, this.pictures.map((picture, i) => {
      const n = i + 1;
      const button = (label, glyph, run, disabled = false) =>
        h("button", { type: "button", class: "plain", "data-key": `${picture.asset}-${glyph}`, "aria-label": label, title: label, disabled, onclick: run }, icon(glyph));
      const item = h("li", { draggable: "true" },
        h("img", { src: picture.thumb, alt: t("references.nth", { n }) }), h("span", {}, t("references.nth", { n })),
        button(t("references.up", { n }), "up", () => this.#move(i, i - 1), i === 0),
        button(t("references.down", { n }), "down", () => this.#move(i, i + 1), n === this.pictures.length),
        button(t("references.remove", { n }), "close", () => {
          this.pictures.splice(i, 1);
          this.#keep();
        }));
      item.addEventListener("dragstart", (event) => event.dataTransfer.setData("application/x-flux2-place", String(i)));
      item.addEventListener("dragover", (event) => event.preventDefault());
      item.addEventListener("drop", (event) => {
        const from = event.dataTransfer.getData("application/x-flux2-place");
        if (from === "") return;
        event.preventDefault();
        event.stopPropagation();
        this.#move(Number(from), i);
      });
      return item;
    }));
  }
}

export class EditTab extends Maker {
  constructor() {
    const references = new References(() => this.form?.forecastSoon());
    const form = new RequestForm("edit", {
      extra: references.element, hasStrength: true, isReady: () => references.pictures.length > 0, references: () => references.pictures.map((p) => p.asset),
      complete: async (request) => ({ ...request, kind: "edit", references: references.pictures.map((p) => p.asset) }),
    });
    super(form, { kind: "edit", check: () => (references.pictures.length ? "" : t("missing.reference")),
      before: () => references.pictures[0].url });
    this.references = references;
    dropTarget(this.element, (p) => references.add(p));
    takePasted(() => !this.element.hidden && this.element.isConnected, (p) => references.add(p));
  }

  receive({ picture }) {
    if (picture) this.references.add(picture);
  }
}
