// What a forecast of the server says, for an image or a training run. What this server does not say is left out.
import { h } from "../lib/dom.js";
import { bytes, t } from "../lib/text.js";

const GIB = 2 ** 30;

// `words` say what it needs; the rest is as the server sends it.
export function forecastLines(words, { fits, limit_gib, model, device, placement, notes = [] }) {
  const limit = limit_gib > 0 ? t("forecast.limit", { memory: bytes(limit_gib * GIB) }) : "";
  const where = [model, device, placement].filter((part) => typeof part === "string" && part).join(" · ");
  return [h("p", { class: fits === false ? "error" : "" }, [words, limit].filter(Boolean).join(" ")),
    where ? h("p", { class: "quiet" }, where) : null, notes.map((note) => h("p", { class: "quiet" }, note))];
}
