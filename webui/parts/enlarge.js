// Enlarges a finished image: with an upscaler that is installed, or by interpolation.
import { postForBlob, upload } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { announce, attempt, dialog } from "./messages.js";

const SCALES = [2, 3, 4];

// `name` is that of the file to save; `edit(picture)` starts an edit of the result.
export async function enlarge(picture, name, edit) {
  const upscalers = (store.info?.features?.upscalers || []).filter((name) => name !== "lanczos");
  const method = h("select", { "data-name": "upscaler" }, upscalers.map((u) => h("option", { value: u }, u)), h("option", { value: "" }, t("enlarge.lanczos")));
  const scale = h("select", { "data-name": "scale" }, SCALES.map((s) => h("option", { value: s, selected: s === 2 }, `× ${s}`)));
  const size = h("p", { class: "quiet" });
  const result = h("div", { class: "enlarged" });
  const button = h("button", { class: "primary" }, icon("fit"), t("enlarge.start"));
  const showSize = () => (size.textContent = t("enlarge.size", { width: picture.width * scale.value, height: picture.height * scale.value }));
  scale.addEventListener("change", showSize);
  showSize();
  let url = "";

  async function run() {
    button.disabled = true;
    replace(result, h("p", { role: "status" }, t("enlarge.running")));
    const factor = Number(scale.value);
    try {
      const chosen = method.value ? { method: "esrgan", upscaler: method.value } : { method: "lanczos" };
      const image = await postForBlob("/upscale", { image: picture.asset, scale: factor, ...chosen });
      URL.revokeObjectURL(url);
      url = URL.createObjectURL(image);
      const file = name.replace(/\.\w+$/, `-x${factor}.png`);
      replace(result, h("img", { src: url, alt: t("enlarge.result") }),
        h("div", { class: "actions" },
          h("a", { class: "button", href: url, download: file }, icon("download"), t("image.download")),
          h("button", { type: "button", onclick: () => attempt(() => editResult(image, file)) }, icon("edit"), t("image.edit"))));
      announce(t("enlarge.done"));
    } catch (error) {
      replace(result);
      throw error;
    } finally {
      button.disabled = false;
    }
  }

  async function editResult(image, file) {
    const asset = await upload(image, file);
    result.closest("dialog").close();
    edit(asset);
  }

  const start = (event) => {
    event.preventDefault();
    attempt(run);
  };
  await dialog(t("enlarge.title"), h("form", { onsubmit: start },
    field(t("enlarge.method"), method, { hint: upscalers.length ? "" : t("enlarge.none_installed") }), field(t("enlarge.scale"), scale), size, button, result), { medium: true });
  URL.revokeObjectURL(url);
}
