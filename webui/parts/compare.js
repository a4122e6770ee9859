// Two images on top of each other and a slider between them.
import { h } from "../lib/dom.js";
import { t } from "../lib/text.js";

export function compare(before, after) {
  const top = h("img", { src: before, alt: t("compare.before") });
  const slider = h("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": t("compare.label"), oninput: () => move() });
  const move = () => (top.style.clipPath = `inset(0 ${100 - slider.value}% 0 0)`);
  move();
  return h("div", { class: "compare" }, h("img", { src: after, alt: t("compare.after") }), top, slider);
}
