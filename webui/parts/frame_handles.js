// Handles at the four sides of an image. Dragging one outwards extends the image on that side; arrow keys do the same.
import { h } from "../lib/dom.js";
import { t } from "../lib/text.js";

export const SIDES = ["left", "top", "right", "bottom"];
const STEP = 16; // pixels of the image
const OUTWARDS = { left: [-1, 0], top: [0, -1], right: [1, 0], bottom: [0, 1] };

export class FrameHandles {
  // `zoom()` is the number of screen pixels per image pixel, `limit(side)` the largest margin. `changed(final)` is called while a
  // handle moves and with true when it stops.
  constructor({ zoom, limit, changed }) {
    Object.assign(this, { zoom, limit, changed });
    this.margins = { left: 0, top: 0, right: 0, bottom: 0 };
    this.handles = Object.fromEntries(SIDES.map((side) => [side, this.#handle(side)]));
    this.elements = Object.values(this.handles);
    this.#show();
  }

  set(margins) {
    this.margins = { left: 0, top: 0, right: 0, bottom: 0, ...margins };
    this.#show();
  }

  list = () => SIDES.map((side) => this.margins[side]);
  isEmpty = () => this.list().every((margin) => margin === 0);

  #handle(side) {
    const [dx, dy] = OUTWARDS[side];
    const element = h("div", { class: `frame-handle ${side}`, role: "slider", tabindex: 0, "aria-label": t(`extend.${side}`), title: t(`extend.${side}`),
      "aria-orientation": dx ? "horizontal" : "vertical", "aria-valuemin": 0 });
    let from = null; // where a drag began
    element.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      element.focus();
      element.setPointerCapture(event.pointerId);
      from = { x: event.clientX, y: event.clientY, margin: this.margins[side], zoom: this.zoom() };
    });
    element.addEventListener("pointermove", (event) => {
      if (!from) return;
      const moved = (event.clientX - from.x) * dx + (event.clientY - from.y) * dy;
      this.#change(side, from.margin + moved / from.zoom, false);
    });
    const end = () => {
      if (from) this.changed(true);
      from = null;
    };
    element.addEventListener("pointerup", end);
    element.addEventListener("pointercancel", end);
    element.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const amount = way ? way[0] * dx + way[1] * dy : 0;
      if (!amount) return;
      event.preventDefault();
      this.#change(side, this.margins[side] + amount * STEP * (event.shiftKey ? 4 : 1), true);
    });
    return element;
  }

  #change(side, margin, final) {
    const rounded = Math.min(Math.max(0, Math.round(margin / STEP) * STEP), this.limit(side));
    if (rounded === this.margins[side] && !final) return;
    this.margins[side] = rounded;
    this.#show();
    this.changed(final);
  }

  #show() {
    for (const side of SIDES) {
      this.handles[side].setAttribute("aria-valuenow", this.margins[side]);
      this.handles[side].setAttribute("aria-valuetext", t("extend.pixels", { n: this.margins[side] }));
    }
  }
}
