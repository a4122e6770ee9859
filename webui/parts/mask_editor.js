// An image with a mask that is painted over it, and a frame that can be drawn larger than the image. The mask has one value per pixel
// of the image, 0 or 255; it is a layer of its own and never part of the image.
import { debounced, h, replace } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { feathered, grown, maskOf, maskOfRuns, paintMask, runsOf, similarPixels } from "../lib/mask_pixels.js";
import { t } from "../lib/text.js";
import { FrameHandles } from "./frame_handles.js";
import { Zoom } from "./zoom.js";

const UNDO_STEPS = 50;
const TOOLS = ["brush", "eraser", "rectangle", "lasso", "wand", "point"];
const COLOURS = [[255, 64, 64], [32, 200, 255], [64, 220, 64]]; // of the layer: one of them is seen on every image

export class MaskEditor {
  // `changed` is called when the mask or the frame has changed; `limit` is the longest side that an image may have.
  constructor({ changed = () => {}, limit = 4096, canFind = false } = {}) {
    this.tools = canFind ? TOOLS : TOOLS.filter((tool) => tool !== "point");
    this.changed = changed;
    this.tool = "brush";
    this.colour = COLOURS[readDraft("mask_colour", { index: 0 }).index] || COLOURS[0];
    this.size = 40; // of the brush, in pixels of the image
    this.wand = { tolerance: 24, contiguous: true };
    this.edge = { grow: 8, feather: 8 };
    this.undone = [];
    this.done = [];
    this.image = new Image();
    this.canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": t("mask.canvas") });
    this.mask = document.createElement("canvas");
    this.soft = document.createElement("canvas"); // the mask as the server uses it: extended, grown and feathered
    this.frame = new FrameHandles({
      zoom: () => this.zoom.value,
      limit: (side) => limit - (["left", "right"].includes(side) ? this.mask.width : this.mask.height),
      changed: (final) => this.#extended(final),
    });
    this.sheet = h("div", { class: "sheet" }, this.canvas, this.frame.elements);
    this.scroller = h("div", { class: "scroller", hidden: true }, this.sheet);
    this.zoom = new Zoom(this.scroller, this.canvas, { changed: () => (this.sheet.style.width = this.canvas.style.width), pinched: () => this.#giveUp() });
    this.sizeInput = h("input", { type: "range", min: 4, max: 300, value: this.size, "aria-label": t("mask.size"),
      oninput: (e) => (this.size = Number(e.target.value)) });
    this.bar = h("div", { class: "toolbar", role: "toolbar", "aria-label": t("mask.tools"), hidden: true });
    this.element = h("div", { class: "mask-editor" }, this.bar, this.scroller);
    this.softenSoon = debounced(60, () => this.#soften());
    this.#showBar();
    this.#listen();
  }

  isEmpty() {
    return !this.mask.width || !maskOf(this.mask).includes(255);
  }

  async open(url) {
    const image = (this.opening = new Image());
    image.src = url;
    await image.decode();
    if (image !== this.opening) return; // another one was opened meanwhile
    this.image = image;
    const { naturalWidth: width, naturalHeight: height } = image;
    if (this.mask.width !== width || this.mask.height !== height) {
      this.mask.width = width;
      this.mask.height = height;
      this.done = [];
      this.undone = [];
    }
    this.colours = null;
    this.bar.hidden = this.scroller.hidden = false;
    this.cursor = { x: width / 2, y: height / 2 };
    this.size = Math.round(Math.max(width, height) / 12);
    this.sizeInput.value = this.size;
    this.frame.set({});
    this.#resize();
    this.zoom.fit();
    this.softenSoon();
  }

  fit = () => this.zoom.fit();

  // `find(point)` selects what is at a place; null: nothing can.
  setFinder(find) {
    this.onPoint = find;
    if (!find && this.tool === "point") this.tool = "brush";
    this.#showBar();
  }

  // [left, top, right, bottom]: by how much the image is extended.
  margins = () => this.frame.list();
  setMargins([left, top, right, bottom]) {
    this.frame.set({ left, top, right, bottom });
    this.#extended(true);
  }

  // How far the server widens the mask and softens its edge; shown around what is painted.
  setEdge(edge) {
    this.edge = edge;
    this.softenSoon();
  }

  // The image inside its frame, for comparing it with a result that is larger.
  framed() {
    const out = document.createElement("canvas");
    out.width = this.canvas.width;
    out.height = this.canvas.height;
    out.getContext("2d").drawImage(this.image, this.frame.margins.left, this.frame.margins.top);
    return out.toDataURL("image/png");
  }

  // The mask as text, small enough to be kept by the browser; restore() takes it back.
  text = () => (this.isEmpty() ? "" : this.mask.toDataURL("image/png"));

  async restore(text) {
    const image = new Image();
    image.src = text;
    await image.decode();
    if (image.naturalWidth !== this.mask.width || image.naturalHeight !== this.mask.height) return;
    this.mask.getContext("2d", { willReadFrequently: true }).drawImage(image, 0, 0);
    this.softenSoon();
  }

  // White where the image is regenerated.
  async blob() {
    const out = document.createElement("canvas");
    out.width = this.mask.width;
    out.height = this.mask.height;
    paintMask(out, maskOf(this.mask), [255, 255, 255]);
    const context = out.getContext("2d");
    context.globalCompositeOperation = "destination-over";
    context.fillRect(0, 0, out.width, out.height);
    return new Promise((resolve) => out.toBlob(resolve, "image/png"));
  }

  draw() {
    const { left, top } = this.frame.margins;
    const { canvas, mask } = this;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.image, left, top);
    context.globalAlpha = 0.3;
    if (this.isSoft) context.drawImage(this.soft, 0, 0);
    else this.#fillMargins(context);
    context.drawImage(mask, left, top);
    context.globalAlpha = 1;
    context.translate(left, top);
    if (!this.frame.isEmpty()) this.#line(context, new Path2D(`M0 0H${mask.width}V${mask.height}H0Z`), [4, 4]);
    if (this.path?.length && ["rectangle", "lasso"].includes(this.tool)) this.#line(context, this.#outline(), [6, 4]);
    if (document.activeElement === canvas && this.keyboard) {
      const circle = new Path2D();
      circle.arc(this.cursor.x, this.cursor.y, ["wand", "point"].includes(this.tool) ? 4 / this.zoom.value : this.size / 2, 0, 7);
      this.#line(context, circle, []);
    }
    context.translate(-left, -top);
  }

  // Adds pixels that were found by others: one byte per pixel of the image.
  add(found) {
    this.#remember();
    this.#put(maskOf(this.mask).map((v, i) => v | found[i]));
  }

  #paint = () => `rgb(${this.colour.join(" ")})`;

  #nextColour() {
    const index = (COLOURS.indexOf(this.colour) + 1) % COLOURS.length;
    this.colour = COLOURS[index];
    writeDraft("mask_colour", { index });
    this.#put(maskOf(this.mask));
  }

  undo = () => this.#travel(this.done, this.undone);
  redo = () => this.#travel(this.undone, this.done);

  clear() {
    this.#remember();
    this.#put(new Uint8Array(this.mask.width * this.mask.height));
  }
  invert() {
    this.#remember();
    this.#put(maskOf(this.mask).map((v) => 255 - v));
  }

  // ---- what is shown ----

  // Dark under white, so that it is seen on every image.
  #line(context, path, dashes) {
    context.setLineDash(dashes);
    for (const [colour, width] of [["#000", 3], ["#fff", 1.5]]) {
      context.strokeStyle = colour;
      context.lineWidth = width / this.zoom.value;
      context.stroke(path);
    }
  }

  #fillMargins(context) {
    const { left, top } = this.frame.margins;
    const path = new Path2D();
    path.rect(0, 0, this.canvas.width, this.canvas.height);
    path.rect(left, top, this.mask.width, this.mask.height);
    context.fillStyle = this.#paint();
    context.fill(path, "evenodd");
  }

  #soften() {
    const { canvas, soft } = this;
    if (!canvas.width || this.path) return;
    soft.width = canvas.width;
    soft.height = canvas.height;
    const context = soft.getContext("2d", { willReadFrequently: true });
    this.#fillMargins(context);
    context.drawImage(this.mask, this.frame.margins.left, this.frame.margins.top);
    const { grow, feather } = this.edge;
    paintMask(soft, feathered(grown(maskOf(soft), soft.width, soft.height, grow), soft.width, soft.height, feather), this.colour);
    this.isSoft = true;
    this.draw();
  }

  #resize() {
    const { left, top, right, bottom } = this.frame.margins;
    this.canvas.width = this.mask.width + left + right;
    this.canvas.height = this.mask.height + top + bottom;
    this.isSoft = false;
    this.zoom.apply();
    this.draw();
  }

  #extended(final) {
    this.#resize();
    if (!final) return;
    this.zoom.fit();
    this.softenSoon();
    this.changed();
  }

  // ---- the mask and its history ----

  #put(pixels) {
    paintMask(this.mask, pixels, this.colour);
    this.isSoft = false;
    this.draw();
    this.softenSoon();
    this.changed();
  }

  #remember() {
    this.done.push(runsOf(maskOf(this.mask)));
    if (this.done.length > UNDO_STEPS) this.done.shift();
    this.undone = [];
    this.#showBar();
  }

  #travel(from, to) {
    if (!from.length) return;
    to.push(runsOf(maskOf(this.mask)));
    this.#put(maskOfRuns(from.pop(), this.mask.width * this.mask.height));
    this.#showBar();
  }

  // A stroke that turned out to be the first finger of two.
  #giveUp() {
    if (!this.path) return;
    this.path = null;
    this.#put(maskOfRuns(this.done.pop(), this.mask.width * this.mask.height));
    this.#showBar();
  }

  // ---- tools ----

  #showBar() {
    const button = (label, glyph, run, more = {}) => h("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick: run, ...more },
      icon(glyph));
    const focused = document.activeElement?.getAttribute("aria-label");
    replace(this.bar,
      this.tools.map((tool) => button(t(`mask.${tool}`), tool, () => {
        this.tool = tool;
        this.#showBar();
      }, { "aria-pressed": String(this.tool === tool), disabled: tool === "point" && !this.onPoint })),
      this.tool === "wand" ? this.#wandSettings() : ["brush", "eraser"].includes(this.tool) ? h("label", {}, t("mask.size"), this.sizeInput) : null,
      button(t("mask.undo"), "undo", this.undo, { disabled: !this.done.length }),
      button(t("mask.redo"), "redo", this.redo, { disabled: !this.undone.length }),
      h("button", { type: "button", onclick: () => this.invert() }, t("mask.invert")),
      h("button", { type: "button", onclick: () => this.clear() }, t("mask.clear")),
      button(t("mask.colour"), "colour", () => this.#nextColour()),
      button(t("mask.larger"), "zoom_in", () => this.zoom.by(1.25)), button(t("mask.smaller"), "zoom_out", () => this.zoom.by(0.8)),
      button(t("mask.fit"), "fit", () => this.fit()));
    if (focused) this.bar.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  #wandSettings() {
    return [
      h("label", {}, t("mask.tolerance"), h("input", { type: "range", min: 0, max: 128, value: this.wand.tolerance, "aria-label": t("mask.tolerance"),
        oninput: (e) => (this.wand.tolerance = Number(e.target.value)) })),
      h("label", {}, h("input", { type: "checkbox", checked: this.wand.contiguous, onchange: (e) => (this.wand.contiguous = e.target.checked) }), t("mask.contiguous")),
    ];
  }

  // In pixels of the image; outside it where the frame is larger.
  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: ((event.clientX - box.left) * this.canvas.width) / box.width - this.frame.margins.left,
      y: ((event.clientY - box.top) * this.canvas.height) / box.height - this.frame.margins.top };
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
    const context = this.mask.getContext("2d", { willReadFrequently: true });
    context.globalCompositeOperation = this.tool === "eraser" ? "destination-out" : "source-over";
    context.strokeStyle = this.#paint();
    context.lineCap = "round";
    context.lineWidth = this.size;
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.lineTo(to.x + 0.01, to.y);
    context.stroke();
    context.globalCompositeOperation = "source-over";
  }

  // Adds the pixels that look like the one at `point`.
  #select(point) {
    const { width, height } = this.mask;
    const x = Math.floor(point.x), y = Math.floor(point.y);
    if (x < 0 || y < 0 || x >= width || y >= height) return;
    if (!this.colours) {
      const canvas = new OffscreenCanvas(width, height);
      canvas.getContext("2d").drawImage(this.image, 0, 0);
      this.colours = canvas.getContext("2d").getImageData(0, 0, width, height);
    }
    this.add(similarPixels(this.colours, x, y, this.wand));
  }

  #begin(point) {
    if (["wand", "point"].includes(this.tool)) {
      this.tool === "wand" ? this.#select(point) : this.onPoint?.(point);
      return;
    }
    this.#remember();
    this.isSoft = false;
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
      const context = this.mask.getContext("2d", { willReadFrequently: true });
      context.fillStyle = this.#paint();
      context.fill(this.#outline());
    }
    this.path = null;
    this.#put(maskOf(this.mask)); // edges become sharp: a pixel is regenerated or it is not
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
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.draw());
  }

  // Arrows move the brush; with Space it paints.
  #key(event) {
    const step = event.shiftKey ? this.size : Math.max(1, this.size / 8);
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (this.zoom.key(event)) {
      event.preventDefault();
      return;
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") event.shiftKey ? this.redo() : this.undo();
    else if (event.key === "[" || event.key === "]") {
      this.size = Math.min(300, Math.max(4, this.size * (event.key === "]" ? 1.2 : 1 / 1.2)));
      this.sizeInput.value = this.size;
    } else if (event.key === " ") {
      this.#begin({ ...this.cursor });
      if (this.path) this.#finish();
    } else if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      this.cursor.x = Math.min(Math.max(this.cursor.x + dx * step, 0), this.mask.width - 1);
      this.cursor.y = Math.min(Math.max(this.cursor.y + dy * step, 0), this.mask.height - 1);
    } else return;
    this.keyboard = true;
    event.preventDefault();
    this.draw();
  }
}
