// Regenerates the painted part of an image.
import { upload } from "../lib/api.js";
import { debounced, field, h } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { dropTarget, imageInput, takePasted } from "../parts/image_input.js";
import { Maker } from "../parts/maker.js";
import { MaskFinder } from "../parts/mask_finder.js";
import { MaskEditor } from "../parts/mask_editor.js";
import { RequestForm } from "../parts/request_form.js";
import { pictureOfImage } from "../parts/image_actions.js";

const GROW = 8, FEATHER = 8; // the server's, in pixels
const NUMBERS = [["strength", 0, 1, 0.05], ["grow", 0, 256, 1], ["feather", 0, 256, 1]];

export class InpaintTab extends Maker {
  constructor() {
    const values = readDraft("inpaint", { strength: "", grow: "", feather: "", picture: null, extend: [0, 0, 0, 0] });
    const edge = () => ({ grow: values.grow === "" ? GROW : Number(values.grow), feather: values.feather === "" ? FEATHER : Number(values.feather) });
    const numbers = h("div", { class: "row" }, NUMBERS.map(([name, min, max, step]) =>
      field(t(`field.${name}`), h("input", { type: "number", min, max, step, value: values[name], placeholder: t("field.default"), oninput: (e) => {
        values[name] = e.target.value;
        writeDraft("inpaint", values);
        editor.setEdge(edge());
      } }))));
    const editor = new MaskEditor({ limit: store.info.limits.side_max, canFind: store.can("/mask/health"), changed: debounced(300, () => {
      writeDraft("mask", { image: values.picture?.url, text: editor.text() });
      values.extend = editor.margins();
      writeDraft("inpaint", values);
    }) });
    editor.setEdge(edge());
    const form = new RequestForm("inpaint", { hasSize: false, extra: numbers, references: () => (values.picture ? [values.picture.asset] : []), complete: async (request) => this.#complete(request) });
    const finder = new MaskFinder(editor, () => values.picture.asset);
    finder.element.hidden = true;
    const input = imageInput((p) => this.receive({ picture: p }));
    super(form, { kind: "inpaint", check: () => this.#missing(), before: () => this.#before(),
      extra: h("div", {}, input, finder.element, editor.element) });
    this.finder = finder;
    this.element.classList.add("image-first"); // on a phone, too, one paints first
    this.values = values;
    this.editor = editor;
    this.result.onImage = (shown) => {
      accept.hidden = !shown;
      this.result.element.classList.toggle("idle", !this.result.job); // the image to paint on needs the room
    };
    const accept = h("div", { class: "actions", hidden: true }, h("button", { onclick: () => this.#accept() }, t("inpaint.accept")),
      h("button", { onclick: () => this.#again() }, icon("dice"), t("inpaint.again")));
    this.result.actions.before(accept);
    this.result.show();
    dropTarget(this.element, (p) => this.receive({ picture: p }));
    takePasted(() => !this.element.hidden && this.element.isConnected, (p) => this.receive({ picture: p }));
    if (values.picture) this.#open();
  }

  // The prompt of the image is a start where none was written.
  receive({ picture, prompt = "" }) {
    if (!picture) return;
    if (prompt && !this.form.draft.prompt.trim()) this.form.set({ prompt });
    this.values.picture = picture;
    this.values.extend = [0, 0, 0, 0];
    writeDraft("inpaint", this.values);
    this.#open();
  }

  shown() {
    if (!this.values.picture) return;
    this.editor.fit();
    if (!this.finder.element.hidden) this.finder.look(); // the service may have come or gone
  }

  async #open() {
    const { extend, picture } = this.values;
    const isOther = () => this.values.picture !== picture; // another one was opened meanwhile
    try {
      await this.editor.open(picture.url);
      if (isOther()) return;
      if (store.can("/mask/health") && this.finder.element.hidden) {
        this.finder.element.hidden = false;
        this.finder.look();
      }
      if (extend.some(Boolean)) this.editor.setMargins(extend);
      const kept = readDraft("mask", { image: "", text: "" });
      if (kept.text && kept.image === picture.url && this.editor.isEmpty()) await this.editor.restore(kept.text);
    } catch {
      if (isOther()) return;
      this.values.picture = null; // it was deleted
      writeDraft("inpaint", this.values);
    }
  }

  #isExtended = () => this.editor.margins().some(Boolean);

  #missing() {
    if (!this.values.picture) return t("missing.picture");
    return this.editor.isEmpty() && !this.#isExtended() ? t("missing.mask") : "";
  }

  #before = () => (this.#isExtended() ? this.editor.framed() : this.values.picture.url);

  // The result becomes the image to go on with; the mask stays.
  #accept() {
    const image = this.result.image();
    if (image) this.receive({ picture: pictureOfImage(image) });
  }

  // The same once more, with the seed after that of the result.
  async #again() {
    const { seed } = this.result.image();
    const before = this.form.draft.seed;
    this.form.draft.seed = String(seed + 1);
    const sent = this.submit(); // has read the form
    this.form.draft.seed = before;
    await sent;
  }

  async #complete(request) {
    if (this.#missing()) return request;
    const result = { ...request, kind: "inpaint", canvas: this.values.picture.asset };
    if (!this.editor.isEmpty()) result.mask = (await upload(await this.editor.blob(), "mask.png")).image;
    if (this.#isExtended()) result.extend = this.editor.margins();
    for (const [name] of NUMBERS) if (this.values[name] !== "") result[name] = Number(this.values[name]);
    return result;
  }
}
