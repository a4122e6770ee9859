// Zoom and pan of a canvas inside an element that scrolls. Ctrl+wheel, two fingers and the keys + − 0 zoom; the wheel, two fingers
// and Ctrl+arrows pan. A trackpad sends a pinch as Ctrl+wheel.
const SMALLEST = 0.1, LARGEST = 16;
const KEY_STEP = 1.25, WHEEL_STEP = 1.15, PAN_STEP = 60; // the last in px

export class Zoom {
  #fingers = new Map(); // of touches: pointer id → event

  // `changed` is called after every change, `pinched` when a second finger arrives: the first one was no stroke.
  constructor(scroller, canvas, { changed = () => {}, pinched = () => {} } = {}) {
    Object.assign(this, { scroller, canvas, changed, pinched, value: 1 });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls
      event.preventDefault();
      this.by(event.deltaY < 0 ? WHEEL_STEP : 1 / WHEEL_STEP, event);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#down(event), { capture: true });
    canvas.addEventListener("pointermove", (event) => this.#move(event), { capture: true });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#fingers.delete(event.pointerId), { capture: true });
  }

  // The whole canvas becomes visible.
  fit() {
    const room = Math.max(this.scroller.clientWidth, 240);
    this.#set(Math.min(room / this.canvas.width, (0.6 * innerHeight) / this.canvas.height));
  }

  // Zooms; the place under `at` (by default the middle) stays where it is.
  by(factor, at = null) {
    const view = this.scroller.getBoundingClientRect();
    const { clientX, clientY } = at || { clientX: view.left + view.width / 2, clientY: view.top + view.height / 2 };
    const before = this.canvas.getBoundingClientRect();
    const x = (clientX - before.left) / before.width, y = (clientY - before.top) / before.height;
    this.#set(this.value * factor);
    const after = this.canvas.getBoundingClientRect();
    this.pan(after.left + x * after.width - clientX, after.top + y * after.height - clientY);
  }

  pan(dx, dy) {
    this.scroller.scrollLeft += dx;
    this.scroller.scrollTop += dy;
  }

  // Whether the key was one of ours.
  key(event) {
    const pans = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if ((event.ctrlKey || event.metaKey) && event.key in pans) this.pan(...pans[event.key].map((v) => v * PAN_STEP));
    else if (event.ctrlKey || event.metaKey || event.altKey) return false;
    else if (event.key === "+" || event.key === "=") this.by(KEY_STEP);
    else if (event.key === "-") this.by(1 / KEY_STEP);
    else if (event.key === "0") this.fit();
    else return false;
    return true;
  }

  // The canvas has a new size.
  apply = () => this.#set(this.value);

  #set(value) {
    this.value = Math.min(Math.max(value, SMALLEST), LARGEST);
    this.canvas.style.width = `${this.canvas.width * this.value}px`;
    this.changed();
  }

  #down(event) {
    if (event.pointerType !== "touch") return;
    this.#fingers.set(event.pointerId, event);
    if (this.#fingers.size !== 2) return;
    event.stopImmediatePropagation();
    this.pinched();
  }

  #move(event) {
    if (!this.#fingers.has(event.pointerId)) return;
    if (this.#fingers.size < 2) {
      this.#fingers.set(event.pointerId, event);
      return;
    }
    event.stopImmediatePropagation();
    const before = this.#span();
    this.#fingers.set(event.pointerId, event);
    const after = this.#span();
    this.by(after.length / before.length, { clientX: before.x, clientY: before.y });
    this.pan(before.x - after.x, before.y - after.y);
  }

  #span() {
    const [a, b] = [...this.#fingers.values()];
    return { x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2, length: Math.max(1, Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY)) };
  }
}
