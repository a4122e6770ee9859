// A curve with the band of its smallest and largest values, as SVG. Points are { x, y, low, high }.
import { h, replace } from "../lib/dom.js";

const WIDTH = 600, HEIGHT = 200, LEFT = 52, BOTTOM = 22;

const svg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

const short = (value) => (Math.abs(value) >= 0.001 && Math.abs(value) < 10000 ? Number(value.toPrecision(3)).toString() : value.toExponential(1));

export class Plot {
  constructor(title, { log = false } = {}) {
    this.title = title;
    this.log = log;
    this.points = [];
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": title });
    this.value = h("output", { class: "quiet" });
    const toggle = h("label", { class: "quiet" }, h("input", { type: "checkbox", checked: log, onchange: (e) => {
      this.log = e.target.checked;
      this.draw();
    } }), "log");
    this.element = h("figure", {}, h("figcaption", {}, title, toggle, this.value), this.picture);
    this.picture.addEventListener("pointermove", (event) => this.#hover(event));
    this.picture.addEventListener("pointerleave", () => (this.value.textContent = ""));
  }

  show(points) {
    this.points = points.filter((p) => Number.isFinite(p.y) && (!this.log || p.y > 0));
    this.draw();
  }

  draw() {
    const { points } = this;
    if (points.length < 2) {
      replace(this.picture);
      return;
    }
    const scale = this.log ? (v) => Math.log10(Math.max(v, 1e-12)) : (v) => v;
    const lows = points.map((p) => scale(p.low ?? p.y)), highs = points.map((p) => scale(p.high ?? p.y));
    const bottom = Math.min(...lows), top = Math.max(...highs), first = points[0].x, last = points.at(-1).x;
    const x = (v) => LEFT + ((v - first) / (last - first || 1)) * (WIDTH - LEFT - 8);
    const y = (v) => 8 + (1 - (scale(v) - bottom) / (top - bottom || 1)) * (HEIGHT - BOTTOM - 12);
    this.place = x;
    const line = points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.y).toFixed(1)}`).join("");
    const band = points.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p.high ?? p.y).toFixed(1)}`).join("") +
      [...points].reverse().map((p) => `L${x(p.x).toFixed(1)} ${y(p.low ?? p.y).toFixed(1)}`).join("") + "Z";
    const text = (value, at, anchor) => svg("text", { x: at[0], y: at[1], "text-anchor": anchor }, value);
    const real = this.log ? (v) => 10 ** v : (v) => v;
    replace(this.picture, svg("path", { d: band, class: "band" }), svg("path", { d: line, class: "line" }),
      text(short(real(top)), [LEFT - 6, 16], "end"), text(short(real(bottom)), [LEFT - 6, HEIGHT - BOTTOM], "end"),
      text(String(first), [LEFT, HEIGHT - 4], "start"), text(String(last), [WIDTH - 8, HEIGHT - 4], "end"));
  }

  #hover(event) {
    if (this.points.length < 2) return;
    const box = this.picture.getBoundingClientRect();
    const at = ((event.clientX - box.left) * WIDTH) / box.width;
    const near = this.points.reduce((a, b) => (Math.abs(this.place(b.x) - at) < Math.abs(this.place(a.x) - at) ? b : a));
    this.value.textContent = `${near.x}: ${short(near.y)}`;
  }
}
