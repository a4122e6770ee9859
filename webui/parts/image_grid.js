// A grid of thumbnails of any length. Only what is on the screen is in the document. Items are { id, thumb, prompt }; places whose
// item is not read yet are asked for through `need(last)`.
import { debounced, h, replace } from "../lib/dom.js";
import { t } from "../lib/text.js";

const GAP = 8;
const SPARE_ROWS = 2;
const REST_MS = 80; // what flies past gets its images when the scrolling rests for so long

export class ImageGrid {
  #cells = new Map(); // place → element
  #frame = 0;
  #lastTop = 0;
  #isFlying = false;
  #fillSoon = debounced(REST_MS, () => this.#fill());

  // `open(place)` shows one, `selected()` is called when the selection has changed.
  constructor({ open, need, selected = () => {}, size = 172 }) {
    Object.assign(this, { open, need, selected, size });
    this.items = [];
    this.total = 0;
    this.chosen = new Set(); // ids
    this.at = 0; // the place that the keyboard is at
    this.picking = false; // whether a click selects instead of opening
    this.spacer = h("div", { class: "spacer", role: "listbox", "aria-multiselectable": "true", "aria-label": t("tab.gallery") });
    this.element = h("div", { class: "gallery", tabindex: -1, onscroll: () => this.#drawSoon() }, this.spacer);
    this.spacer.addEventListener("click", (event) => this.#click(event));
    this.spacer.addEventListener("keydown", (event) => this.#key(event));
    this.spacer.addEventListener("error", (event) => event.target.closest(".cell")?.classList.add("lost"), { capture: true });
    new ResizeObserver(() => this.#drawSoon()).observe(this.element);
  }

  // `total` is at least the number of items; the rest is read when it comes into view.
  show(items, total) {
    this.items = items;
    this.total = Math.max(total, items.length);
    this.at = Math.min(this.at, Math.max(0, this.total - 1));
    this.#drawSoon();
  }

  // From the beginning, with other items.
  reset() {
    this.element.scrollTop = 0;
    this.at = 0;
    this.#empty();
  }

  // Items have changed their places or what they show.
  redraw() {
    this.#empty();
    this.#drawSoon();
  }

  setSize(size) {
    const middle = this.#columns() * (this.element.scrollTop / this.#pitch()); // stays in view
    this.size = size;
    this.redraw();
    this.element.scrollTop = (middle / this.#columns()) * this.#pitch();
  }

  choose(ids) {
    this.chosen = new Set(ids);
    for (const cell of this.#cells.values()) this.#mark(cell);
    this.selected();
  }
  chosenItems = () => this.items.filter((item) => this.chosen.has(item.id));

  // ---- drawing ----

  #columns = () => Math.max(1, Math.floor((this.element.clientWidth + GAP) / (this.size + GAP)));

  // From one cell to the next: they fill the width.
  #pitch = () => Math.floor((this.element.clientWidth + GAP) / this.#columns());

  #empty() {
    this.#cells.clear();
    replace(this.spacer);
  }

  #drawSoon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    if (this.element.clientWidth === 0) return;
    const columns = this.#columns(), pitch = this.#pitch();
    if (columns !== this.columns || pitch !== this.pitch) this.#empty();
    Object.assign(this, { columns, pitch });
    const rows = Math.ceil(this.total / columns);
    const height = `${rows * pitch}px`;
    if (this.spacer.style.height !== height) this.spacer.style.height = height;
    const top = this.element.scrollTop, view = this.element.clientHeight;
    this.#isFlying = Math.abs(top - this.#lastTop) > view;
    this.#lastTop = top;
    if (this.#isFlying) this.#fillSoon();
    const first = columns * Math.max(0, Math.floor(top / pitch) - SPARE_ROWS);
    const last = Math.min(this.total, columns * (Math.ceil((top + view) / pitch) + SPARE_ROWS));
    for (const [place, cell] of this.#cells)
      if (place < first || place >= last || cell.dataset.id !== (this.items[place]?.id ?? "")) {
        cell.remove();
        this.#cells.delete(place);
      }
    const added = document.createDocumentFragment();
    for (let place = first; place < last; ++place)
      if (!this.#cells.has(place)) {
        const cell = this.#cell(place);
        cell.style.transform = `translate(${(place % columns) * pitch}px, ${Math.floor(place / columns) * pitch}px)`;
        cell.style.width = cell.style.height = `${pitch - GAP}px`;
        this.#cells.set(place, cell);
        added.append(cell);
      }
    this.spacer.append(added);
    if (last > this.items.length || last === this.total) this.need(last);
  }

  #cell(place) {
    const item = this.items[place];
    const cell = h("div", { class: "cell", role: "option", tabindex: place === this.at ? 0 : -1, "data-place": place, "data-id": item?.id ?? "",
      "aria-posinset": place + 1, "aria-setsize": this.total, "aria-label": item ? item.prompt || t("gallery.image") : t("gallery.reading") },
      item && !this.#isFlying ? this.#image(item) : null, item?.starred ? h("span", { class: "star" }, "★") : null);
    this.#mark(cell);
    return cell;
  }

  #image = (item) => h("img", { src: item.thumb, alt: "", decoding: "async" });

  // Images of cells that were drawn without.
  #fill() {
    for (const [place, cell] of this.#cells)
      if (this.items[place]?.id === cell.dataset.id && !cell.querySelector("img")) cell.prepend(this.#image(this.items[place]));
  }

  #mark(cell) {
    cell.setAttribute("aria-selected", String(this.chosen.has(cell.dataset.id)));
  }

  // ---- choosing ----

  #toggle(place) {
    const id = this.items[place]?.id;
    if (!id) return;
    this.chosen.has(id) ? this.chosen.delete(id) : this.chosen.add(id);
    this.from = place;
    this.choose(this.chosen);
  }

  #range(place) {
    const [a, b] = [this.from ?? this.at, place].sort((x, y) => x - y);
    this.choose([...this.chosen, ...this.items.slice(a, b + 1).map((item) => item.id)]);
  }

  #click(event) {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    const place = Number(cell.dataset.place);
    this.#focus(place);
    if (event.shiftKey) this.#range(place);
    else if (event.ctrlKey || event.metaKey || this.picking) this.#toggle(place);
    else if (this.items[place]) this.open(place);
  }

  #key(event) {
    const rows = Math.max(1, Math.floor(this.element.clientHeight / this.#pitch()));
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -rows * this.columns, PageDown: rows * this.columns,
      Home: -this.total, End: this.total }[event.key];
    if (step) {
      const place = Math.min(Math.max(0, this.at + step), this.total - 1);
      if (event.shiftKey) this.#range(place);
      this.#focus(place);
    } else if (event.key === "Enter") this.items[this.at] && this.open(this.at);
    else if (event.key === " ") this.#toggle(this.at);
    else if (event.key === "Escape" && this.chosen.size) this.choose([]);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) this.choose(this.items.map((item) => item.id));
    else return;
    event.preventDefault();
  }

  // Moves the keyboard to a place and brings it into view.
  #focus(place) {
    this.#cells.get(this.at)?.setAttribute("tabindex", -1);
    this.at = place;
    const pitch = this.#pitch(), y = Math.floor(place / this.columns) * pitch;
    const { scrollTop, clientHeight } = this.element;
    if (y < scrollTop) this.element.scrollTop = y;
    else if (y + pitch > scrollTop + clientHeight) this.element.scrollTop = y + pitch - clientHeight;
    this.#draw();
    const cell = this.#cells.get(place);
    cell?.setAttribute("tabindex", 0);
    cell?.focus({ preventScroll: true });
  }
}
