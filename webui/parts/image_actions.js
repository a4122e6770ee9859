// What can be done with a finished image, wherever it is shown.
import { h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { enlarge } from "./enlarge.js";
import { attempt } from "./messages.js";
import { canDescribe, describeImage } from "./prompt_rewriter.js";

// Tabs listen to these: { to: "edit", image } or { to: "generate", settings }.
export function sendTo(to, detail) {
  location.hash = to;
  document.dispatchEvent(new CustomEvent("flux2:send", { detail: { to, ...detail } }));
}

const thumbOf = (asset) => `/api/v1/assets/ast_${asset.replace(/^asset:(ast_)?/, "")}/thumb`;

// A prompt from which the server makes that of the job once more: it adds the style of the project, and the images of elements that the
// prompt names.
function promptOf({ request, resolved }) {
  const sent = request?.prompt ?? "", made = resolved?.prompt ?? sent;
  if (store.elements.some((e) => sent.toLowerCase().includes(e.trigger.toLowerCase()))) return { prompt: sent, template: request.style || "" };
  const style = store.projects.find((p) => p.id === store.project)?.style_prompt;
  return { prompt: style && made.endsWith(`, ${style}`) ? made.slice(0, -style.length - 2) : made, template: "" };
}

// The settings of a job as its form would hold them. What the server filled in is included, so that the image comes out equal.
export function settingsOf(job, { seed }) {
  const r = job.resolved || job.request || {};
  const settings = { ...promptOf(job), negative: r.negative ?? "", width: r.width, height: r.height, steps: r.steps, guidance: r.guidance,
    sampler: r.sampler ?? "", schedule: r.schedule ?? "", profile: r.profile ?? "", count: 1, seed: seed ?? "", preset: "",
    loras: (job.request?.loras || []).map((l) => ({ name: l.name, weight: l.weight ?? 1, on: true })) };
  settings.model = job.request?.model ?? ""; // without one, the default
  settings.tile = r.tile ?? "";
  settings.regions = (job.request?.regions || []).filter((region) => region.box).map(({ prompt, box }) => ({ prompt, x: box[0], y: box[1], w: box[2], h: box[3] }));
  settings.image_prompts = (job.request?.image_prompts || []).map(({ image, strength = "", from = "", to = "" }) => ({ asset: image, thumb: thumbOf(image), strength, from, to }));
  settings.image_prompt_adapter = job.request?.image_prompt_adapter ?? "";
  settings.hires = r.hires ?? "";
  settings.hires_strength = r.hires_strength ?? "";
  settings.detail_boxes = (job.request?.detail_box || []).join(" ");
  settings.detail_strength = job.request?.detail_strength ?? "";
  settings.detail_mask = job.request?.detail_mask ? { asset: job.request.detail_mask, thumb: thumbOf(job.request.detail_mask) } : null;
  [settings.variation_seed, settings.variation_strength] = (r.variation ?? ":").split(":");
  return settings;
}

// An image of a job as an input of another one.
export const pictureOfImage = (image) => ({ asset: `asset:${image.asset_id.replace(/^ast_/, "")}`, url: image.url, thumb: image.thumb_url,
  width: image.width, height: image.height });

export const pictureOfAsset = (asset) => pictureOfImage({ ...asset, asset_id: asset.id });

// The pixels alone, without the settings that the file carries: as PNG, because that loses nothing.
async function downloadPlain(url, name) {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
  canvas.getContext("2d").drawImage(image, 0, 0);
  const file = URL.createObjectURL(await canvas.convertToBlob({ type: "image/png" }));
  h("a", { href: file, download: name.replace(/\.\w+$/, ".png") }).click();
  setTimeout(() => URL.revokeObjectURL(file), 60_000);
}

export function imageActions(job, image) {
  const picture = pictureOfImage(image);
  const name = `${(job.request?.prompt || "image").slice(0, 40).replace(/[^\p{L}\p{N}]+/gu, "-")}-${image.seed}.${job.request?.output_format || "png"}`;
  const button = (label, glyph, run) => h("button", { onclick: run }, icon(glyph), t(label));
  return [
    h("a", { class: "button", href: image.url, download: name }, icon("download"), t("image.download")),
    button("image.download_plain", "download", () => attempt(() => downloadPlain(image.url, name))),
    button("image.edit", "edit", () => sendTo("edit", { picture })),
    button("image.inpaint", "inpaint", () => sendTo("inpaint", { picture, prompt: job.request?.prompt })),
    button("image.enlarge", "fit", () => enlarge(picture, name, (asset) => sendTo("edit", { picture: pictureOfAsset(asset) }))),
    ...(canDescribe() ? [button("image.describe", "queue", () => describeImage(picture, (prompt) => sendTo("generate", { settings: { prompt } })))] : []),
    button("image.reuse", "generate", () => sendTo("generate", { settings: settingsOf(job, { seed: image.seed }) })),
    button("image.remix", "dice", () => sendTo("generate", { settings: settingsOf(job, { seed: "" }) })),
  ];
}
