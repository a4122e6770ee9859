// Selects what words or a click name, with the mask service of the server. Without the service it says so and nothing else changes.
import { get, postForBlob } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { maskOfPicture } from "../lib/mask_pixels.js";
import { Reading } from "../lib/reading.js";
import { t } from "../lib/text.js";
import { attempt } from "./messages.js";

export class MaskFinder {
  // `picture()` is the image as a request names it: asset:ID.
  constructor(editor, picture) {
    Object.assign(this, { editor, picture });
    this.words = h("input", { type: "search", placeholder: t("finder.words"), "aria-label": t("finder.words") });
    this.button = h("button", {}, t("finder.select"));
    this.note = h("p", { class: "quiet", role: "status" });
    this.element = h("form", { class: "toolbar finder", onsubmit: (event) => {
      event.preventDefault();
      const text = this.words.value.trim();
      if (text) this.#find("/mask/text", { text });
    } }, this.words, this.button, this.note);
    this.health = new Reading(() => get("/mask/health").catch(() => null), (health) => this.#setOnline(Boolean(health?.online)));
    this.#setOnline(false);
    this.note.textContent = "";
  }

  // Asks whether the service is there.
  look = () => this.health.read();

  #setOnline(online) {
    this.words.disabled = this.button.disabled = !online;
    this.note.textContent = online ? "" : t("finder.offline");
    this.editor.setFinder(online ? ({ x, y }) => this.#find("/mask/points", { points: [[Math.floor(x), Math.floor(y)]] }) : null);
  }

  async #find(route, fields) {
    this.note.textContent = t("finder.looking");
    this.button.disabled = true;
    const image = this.picture();
    const found = await attempt(async () => maskOfPicture(await postForBlob(route, { image, ...fields })));
    this.button.disabled = false;
    this.note.textContent = "";
    if (!found) this.look(); // it may have gone
    else if (image === this.picture() && found.length === this.editor.mask.width * this.editor.mask.height) this.editor.add(found);
  }
}
