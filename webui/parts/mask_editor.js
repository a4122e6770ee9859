// An image with a mask that is painted over it. The mask has one value per pixel of the image, 0 or 255; it is a layer of its own and
// never part of the image.
import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";

const UNDO_STEPS = 50;
const TOOLS = ["brush", "eraser", "rectangle", "lasso"];

export class MaskEditor {
  constructor(changed = () => {}) {
    this.changed = changed;
    this.tool = "brush";
    this.size = 40; // of the brush, in pixels of the image
    this.zoom = 1;
    this.undone = [];
    this.done = [];
    this.image = new Image();
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": t("mask.canvas") });
    this.mask = document.createElement("canvas");
    this.scroller = h("div", { class: "scroller", hidden: true }, this.canvas);
    this.sizeInput = h("input", { type: "range", min: 4, max: 300, value: this.size, "aria-label": t("mask.size"),
      oninput: (e) => (this.size = Number(e.target.value)) });
    this.bar = h("div", { class: "toolbar", role: "toolbar", "aria-label": t("mask.tools"), hidden: true });
    this.element = h("div", { class: "mask-editor" }, this.bar, this.scroller);
    this.#showBar();
    this.#listen();
  }

  isEmpty() {
    return !this.mask.width || !this.#pixels().some((v) => v);
  }

  async open(url) {
    this.image = new Image();
    this.image.src = url;
    await this.image.decode();
    const { naturalWidth: width, naturalHeight: height } = this.image;
    const keeps = this.mask.width === width && this.mask.height === height;
    this.canvas.width = width;
    this.canvas.height = height;
    if (!keeps) {
      this.mask.width = width;
      this.mask.height = height;
      this.done = [];
      this.undone = [];
    }
    this.bar.hidden = this.scroller.hidden = false;
    this.cursor = { x: width / 2, y: height / 2 };
    this.size = Math.round(Math.max(width, height) / 12);
    this.sizeInput.value = this.size;
    this.fit();
    this.draw();
  }

  // The mask as text, small enough to be kept by the browser; restore() takes it back.
  text = () => (this.isEmpty() ? "" : this.mask.toDataURL("image/png"));

  async restore(text) {
    const image = new Image();
    image.src = text;
    await image.decode();
    if (image.naturalWidth !== this.mask.width || image.naturalHeight !== this.mask.height) return;
    this.mask.getContext("2d").drawImage(image, 0, 0);
    this.draw();
  }

  // White where the image is regenerated.
  async blob() {
    const out = document.createElement("canvas");
    out.width = this.mask.width;
    out.height = this.mask.height;
    const context = out.getContext("2d");
    const data = context.createImageData(out.width, out.height);
    this.#pixels().forEach((v, i) => data.data.set([v, v, v, 255], 4 * i));
    context.putImageData(data, 0, 0);
    return new Promise((resolve) => out.toBlob(resolve, "image/png"));
  }

  fit() {
    const room = Math.max(this.scroller.clientWidth, 240);
    this.setZoom(Math.min(room / this.canvas.width, (0.6 * innerHeight) / this.canvas.height));
  }

  setZoom(zoom) {
    this.zoom = Math.min(Math.max(zoom, 0.1), 16);
    this.canvas.style.width = `${this.canvas.width * this.zoom}px`;
  }

  draw() {
    const context = this.canvas.getContext("2d");
    context.globalAlpha = 1;
    context.drawImage(this.image, 0, 0);
    context.globalAlpha = 0.55;
    context.drawImage(this.mask, 0, 0);
    context.globalAlpha = 1;
    if (this.path?.length && ["rectangle", "lasso"].includes(this.tool)) {
      context.setLineDash([6, 4]);
      context.strokeStyle = "#fff";
      context.lineWidth = Math.max(1, 1.5 / this.zoom);
      context.stroke(this.#outline());
    }
    if (document.activeElement === this.canvas && this.keyboard) {
      context.setLineDash([]);
      context.strokeStyle = "#fff";
      context.lineWidth = Math.max(1, 2 / this.zoom);
      context.beginPath();
      context.arc(this.cursor.x, this.cursor.y, this.size / 2, 0, 7);
      context.stroke();
    }
  }

  undo = () => this.#travel(this.done, this.undone);
  redo = () => this.#travel(this.undone, this.done);

  clear() {
    this.#remember();
    this.#put(new Uint8Array(this.mask.width * this.mask.height));
  }
  invert() {
    this.#remember();
    this.#put(this.#pixels().map((v) => 255 - v));
  }

  // ---- pixels ----

  #pixels() {
    const { data } = this.mask.getContext("2d").getImageData(0, 0, this.mask.width, this.mask.height);
    return Uint8Array.from({ length: data.length / 4 }, (_, i) => (data[4 * i + 3] > 127 ? 255 : 0));
  }

  #put(pixels) {
    const context = this.mask.getContext("2d");
    const image = context.createImageData(this.mask.width, this.mask.height);
    pixels.forEach((v, i) => v && image.data.set([255, 64, 64, 255], 4 * i));
    context.putImageData(image, 0, 0);
    this.draw();
    this.changed();
  }

  #remember() {
    this.done.push(this.#pixels());
    if (this.done.length > UNDO_STEPS) this.done.shift();
    this.undone = [];
    this.#showBar();
  }

  #travel(from, to) {
    if (!from.length) return;
    to.push(this.#pixels());
    this.#put(from.pop());
    this.#showBar();
  }

  // ---- tools ----

  #showBar() {
    const button = (label, glyph, run, more = {}) => h("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick: run, ...more },
      icon(glyph));
    replace(this.bar,
      TOOLS.map((tool) => button(t(`mask.${tool}`), tool, () => {
        this.tool = tool;
        this.#showBar();
      }, { "aria-pressed": String(this.tool === tool) })),
      h("label", {}, t("mask.size"), this.sizeInput),
      button(t("mask.undo"), "undo", this.undo, { disabled: !this.done.length }),
      button(t("mask.redo"), "redo", this.redo, { disabled: !this.undone.length }),
      h("button", { type: "button", onclick: () => this.invert() }, t("mask.invert")),
      h("button", { type: "button", onclick: () => this.clear() }, t("mask.clear")),
      button(t("mask.fit"), "fit", () => this.fit()));
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: ((event.clientX - box.left) * this.canvas.width) / box.width, y: ((event.clientY - box.top) * this.canvas.height) / box.height };
  }

  #outline() {
    const path = new Path2D();
    if (this.tool === "rectangle") {
      const a = this.path[0], b = this.path.at(-1);
      path.rect(a.x, a.y, b.x - a.x, b.y - a.y);
      return path;
    }
    this.path.forEach((p, i) => (i ? path.lineTo(p.x, p.y) : path.moveTo(p.x, p.y)));
    path.closePath();
    return path;
  }

  #stroke(from, to) {
    const context = this.mask.getContext("2d");
    context.globalCompositeOperation = this.tool === "eraser" ? "destination-out" : "source-over";
    context.strokeStyle = "rgb(255 64 64)";
    context.lineCap = "round";
    context.lineWidth = this.size;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x + 0.01, to.y);
    context.stroke();
    context.globalCompositeOperation = "source-over";
  }

  #begin(point) {
    this.#remember();
    this.path = [point];
    if (["brush", "eraser"].includes(this.tool)) this.#stroke(point, point);
    this.draw();
  }

  #continue(point) {
    if (["brush", "eraser"].includes(this.tool)) this.#stroke(this.path.at(-1), point);
    this.path.push(point);
    this.draw();
  }

  #finish() {
    if (["rectangle", "lasso"].includes(this.tool)) {
      const context = this.mask.getContext("2d");
      context.fillStyle = "rgb(255 64 64)";
      context.fill(this.#outline());
    }
    this.path = null;
    this.#put(this.#pixels()); // edges become sharp: a pixel is regenerated or it is not
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      this.keyboard = false;
      this.#begin(this.#point(event));
    });
    canvas.addEventListener("pointermove", (event) => this.path && this.#continue(this.#point(event)));
    canvas.addEventListener("pointerup", () => this.path && this.#finish());
    canvas.addEventListener("pointercancel", () => this.path && this.#finish());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return; // without it the page scrolls
      event.preventDefault();
      this.setZoom(this.zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.draw());
  }

  // Arrows move the brush; with Space it paints.
  #key(event) {
    const step = event.shiftKey ? this.size : Math.max(1, this.size / 8);
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") event.shiftKey ? this.redo() : this.undo();
    else if (event.key === "[" || event.key === "]") {
      this.size = Math.min(300, Math.max(4, this.size * (event.key === "]" ? 1.2 : 1 / 1.2)));
      this.sizeInput.value = this.size;
    } else if (event.key === " ") {
      this.#begin({ ...this.cursor });
      this.#finish();
    } else if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      this.cursor.x = Math.min(Math.max(this.cursor.x + dx * step, 0), this.canvas.width);
      this.cursor.y = Math.min(Math.max(this.cursor.y + dy * step, 0), this.canvas.height);
    } else return;
    this.keyboard = true;
    event.preventDefault();
    this.draw();
  }
}
