// The settings that Generate, Edit and Inpaint share. Its state is a job request; what is empty is left to the server.
import { post } from "../lib/api.js";
import { debounced, field, h, replace } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, seconds, t } from "../lib/text.js";
import { Completion } from "./completion.js";
import { DetailPass } from "./detail_pass.js";
import { forecastLines } from "./forecast.js";
import { ImagePromptList } from "./image_prompt_list.js";
import { errorText } from "./messages.js";
import { canRewrite, expandPrompt } from "./prompt_rewriter.js";
import { choosePrompt, TemplateChoice } from "./prompt_tools.js";
import { RegionList } from "./region_list.js";
import { Resolution } from "./resolution.js";

const SIZES = [["1:1", 1, 1], ["4:3", 4, 3], ["3:2", 3, 2], ["16:9", 16, 9], ["3:4", 3, 4], ["2:3", 2, 3], ["9:16", 9, 16]];
const STEP = 16;

const rounded = (value) => Math.max(64, Math.round(value / STEP) * STEP);

export class RequestForm {
  // `name` keeps the drafts of the tabs apart. `extra` are more controls, after the prompt; `complete` adds their values.
  // `references()` are the images that the prompt is about; `isReady()` says whether there is enough to ask for a forecast.
  constructor(name, { extra = [], complete = async (request) => request, references = () => [], isReady = () => true, hasSize = true, hasStrength = false } = {}) {
    this.name = name;
    this.complete = complete;
    this.references = references;
    this.isReady = isReady;
    this.hasSize = hasSize;
    this.draft = readDraft(`draft.${name}`, { prompt: "", negative: "", count: 1, seed: "", template: "", preset: "", loras: [] });
    this.history = readDraft("history", { prompts: [] }).prompts;
    this.place = this.history.length;
    this.forecast = h("div", { class: "quiet forecast", "aria-live": "off" });
    this.forecasting = new Reading(() => this.#forecast(), (lines) => replace(this.forecast, lines));
    this.forecastSoon = debounced(500, () => this.forecasting.read());
    this.resolution = new Resolution(this);
    this.regions = new RegionList(() => this.draft.regions ?? [], (regions) => {
      this.draft.regions = regions;
      this.#changed();
    });
    this.detail = new DetailPass(
      () => ({ boxes: this.draft.detail_boxes ?? "", strength: this.draft.detail_strength ?? "", mask: this.draft.detail_mask ?? null }),
      ({ boxes, strength, mask }) => {
        Object.assign(this.draft, { detail_boxes: boxes, detail_strength: strength, detail_mask: mask });
        this.#changed();
      });
    this.imagePrompts = new ImagePromptList(() => ({ adapter: this.draft.image_prompt_adapter ?? "", images: this.draft.image_prompts ?? [] }),
      ({ adapter, images }) => {
        this.draft.image_prompt_adapter = adapter;
        this.draft.image_prompts = images;
        this.#changed();
      });
    this.loraList = h("div", { class: "loras" });
    this.defaultsHost = h("div", { class: "row" });
    this.negativeHost = h("div");
    this.element = h("div", { class: "form" }, this.#prompt(), this.negativeHost, extra, hasSize ? this.#size() : null,
      h("div", { class: "row" }, this.#number("count", { min: 1, max: store.info.limits.batch }), this.#seed()),
      this.defaultsHost, hasStrength ? this.#strength() : null, this.#loras(), this.#advanced(), this.forecast);
    this.showModel();
    store.on("info", () => this.showModel());
  }

  set(values) {
    Object.assign(this.draft, values);
    this.#changed();
    for (const control of this.element.querySelectorAll("[data-name]")) {
      const value = this.draft[control.dataset.name];
      if (control.type === "checkbox") control.checked = Boolean(value);
      else control.value = value ?? "";
    }
    this.templates.show();
    this.regions.show();
    this.imagePrompts.show();
    this.detail.show();
    this.#showLoras();
  }

  addLora(name) {
    const others = this.draft.loras.filter((l) => l.name !== name);
    const weight = store.loras.find((l) => l.name === name)?.defaults?.lora_weight ?? 1;
    this.set({ loras: [...others, { name, weight, on: true }] });
  }

  model = () => this.draft.model || store.models.find((m) => m.type === "main" && m.loaded)?.name || "";

  async request() {
    const d = this.draft;
    const request = { prompt: d.prompt };
    for (const name of ["width", "height", "count", "steps", "seed"])
      if (d[name] !== "" && d[name] !== undefined) request[name] = parseInt(d[name], 10);
    for (const name of ["guidance", "strength"]) if (d[name] !== "" && d[name] !== undefined) request[name] = parseFloat(d[name]);
    for (const name of ["model", "preset", "sampler", "schedule", "profile", "output_format", "tile"]) if (d[name]) request[name] = d[name];
    if (d.variation_seed !== "" && d.variation_seed !== undefined)
      request.variation = `${parseInt(d.variation_seed, 10)}:${d.variation_strength || 0.1}`;
    if (this.hasSize && d.hires > 1) {
      request.hires = parseFloat(d.hires);
      if (d.hires_strength) request.hires_strength = parseFloat(d.hires_strength);
    }
    if (this.hasSize) Object.assign(request, this.detail.request());
    const regions = this.hasSize ? this.regions.request() : [];
    if (regions.length) request.regions = regions;
    Object.assign(request, this.imagePrompts.request());
    if (d.negative && store.defaults(this.model()).negative) request.negative = d.negative;
    if (store.project !== "default") request.project_id = store.project;
    this.templates.apply(request);
    const loras = d.loras.filter((l) => l.on);
    if (loras.length) request.loras = loras.map(({ name, weight }) => ({ name, weight }));
    return this.complete(request);
  }

  // Kept for Alt+Up and Alt+Down.
  remember() {
    const kept = 100;
    this.history = [...this.history.filter((p) => p !== this.draft.prompt), this.draft.prompt].slice(-kept);
    this.place = this.history.length;
    writeDraft("history", { prompts: this.history });
  }

  // What depends on the model: the bounds and defaults of its settings.
  showModel() {
    const defaults = store.defaults(this.model());
    const locked = new Set(defaults.locked || []);
    const one = (name, values) => {
      const control = this.#control("input", name, { type: "number", inputmode: "decimal", disabled: locked.has(name), ...values });
      control.placeholder = defaults[name] ?? "";
      return field(t(`field.${name}`), control, { hint: locked.has(name) ? t("field.locked") : "" });
    };
    replace(this.defaultsHost, this.#choice("preset", store.info.presets || [], "preset_name"), one("steps", { min: 1, max: store.info.limits.steps, step: 1 }),
      one("guidance", { min: 0, max: 30, step: 0.1 }));
    replace(this.negativeHost,
      defaults.negative ? field(t("field.negative"), this.#control("textarea", "negative", { rows: 1 }), { wide: true }) : null);
    for (const name of ["width", "height"]) {
      const control = this.element.querySelector(`[data-name=${name}]`);
      if (control) control.placeholder = defaults[name] ?? "";
    }
    this.#showLoras();
    this.forecastSoon();
  }

  #changed() {
    writeDraft(`draft.${this.name}`, this.draft);
    this.resolution.showSoon();
    this.forecastSoon();
  }

  #control(tag, name, attributes, children = []) {
    const control = h(tag, { ...attributes, "data-name": name, value: this.draft[name] ?? "" }, children);
    if (tag === "select") control.value = this.draft[name] ?? "";
    control.addEventListener("input", () => {
      this.draft[name] = control.value;
      this.#changed();
    });
    return control;
  }

  #number(name, attributes) {
    return field(t(`field.${name}`), this.#control("input", name, { type: "number", inputmode: "numeric", step: 1, ...attributes }));
  }

  #choice(name, values, texts = "") {
    const options = [h("option", { value: "" }, t("field.default")), ...values.map((v) => h("option", { value: v }, texts ? t(`${texts}.${v}`) : v))];
    return field(t(`field.${name}`), this.#control("select", name, {}, options));
  }

  #prompt() {
    const box = this.#control("textarea", "prompt", { rows: 4, spellcheck: "true", placeholder: t(`prompt.${this.name}`) });
    box.addEventListener("keydown", (event) => {
      if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault();
      this.place = Math.min(Math.max(this.place + (event.key === "ArrowUp" ? -1 : 1), 0), this.history.length);
      this.set({ prompt: this.history[this.place] ?? "" });
    });
    this.templates = new TemplateChoice(this, (values) => this.set(values));
    box.addEventListener("input", () => this.templates.show());
    const history = h("button", { type: "button", class: "chip", onclick: async () => {
      const prompt = await choosePrompt(this.history);
      if (prompt) this.set({ prompt });
      box.focus();
    } }, t("history.title"));
    const expand = h("button", { type: "button", class: "chip", onclick: async () => {
      await expandPrompt(this, { kind: this.name === "generate" ? "t2i" : "edit", references: this.references });
      box.focus();
    } }, t("rewrite.button"));
    const showExpand = () => (expand.hidden = !canRewrite());
    store.on("info", showExpand);
    showExpand();
    this.templates.element.append(history, expand);
    const labelled = field(t("field.prompt"), box, { wide: true });
    labelled.append(new Completion(box, (word) => this.#complete(word)).element, this.templates.element, this.templates.preview, this.resolution.element);
    return labelled;
  }

  // What "@" in the prompt offers: elements, and LoRAs. A LoRA is switched on, and its trigger words come into the prompt.
  #complete(word) {
    const elements = store.elements.filter((e) => `${e.trigger} ${e.name}`.toLowerCase().includes(word)).map((e) => ({ label: e.trigger,
      detail: `${t(`element.${e.type}`)} · ${e.name}`, thumb: e.thumb_url || "", take: () => `${e.trigger} ` }));
    const loras = store.loras.filter((l) => l.name.toLowerCase().includes(word)).map((l) => ({ label: l.name, detail: t("type.lora"), take: () => {
      this.addLora(l.name);
      return (l.trigger_phrases || []).join(", ");
    } }));
    return [...elements, ...loras];
  }

  #size() {
    const preset = ([label, w, ht]) =>
      h("button", { type: "button", class: "chip", onclick: () => {
        const defaults = store.defaults(this.model());
        const area = (defaults.width || 1024) * (defaults.height || 1024);
        this.set({ width: rounded(Math.sqrt((area * w) / ht)), height: rounded(Math.sqrt((area * ht) / w)) });
      } }, label);
    const bounds = { min: store.info.limits.side_min, max: store.info.limits.side_max, step: STEP };
    return h("fieldset", {}, h("legend", {}, t("field.size")), h("div", { class: "chips" }, SIZES.map(preset)),
      h("div", { class: "row" }, this.#number("width", bounds),
        h("button", { type: "button", class: "plain", "aria-label": t("size.swap"), title: t("size.swap"), onclick: () => {
          const defaults = store.defaults(this.model());
          this.set({ width: this.draft.height || defaults.height, height: this.draft.width || defaults.width });
        } }, icon("swap")),
        this.#number("height", bounds)));
  }

  #seed() {
    const control = this.#control("input", "seed", { type: "number", min: 0, step: 1, placeholder: t("seed.random") });
    const dice = h("button", { type: "button", class: "plain", "aria-label": t("seed.forget"), title: t("seed.forget"),
      onclick: () => this.set({ seed: "" }) }, icon("dice"));
    return h("div", { class: "with-button" }, field(t("field.seed"), control), dice);
  }

  // Without a value, the images are references only; with one, the first image is also what the result starts from.
  #strength() {
    return field(t("field.strength"), this.#control("input", "strength", { type: "number", min: 0, max: 1, step: 0.05, placeholder: t("strength.off") }),
      { hint: t("strength.hint") });
  }

  #advanced() {
    const info = store.info;
    return h("details", {}, h("summary", {}, t("advanced")), h("div", { class: "row" },
      this.#choice("sampler", info.samplers), this.#choice("schedule", info.schedules.filter((s) => s !== "sigmas")),
      this.#choice("profile", info.profiles), this.#choice("output_format", info.formats.write),
      this.#choice("tile", ["x", "y", "both"], "tile_name")),
      h("div", { class: "row" }, this.#number("variation_seed", { min: 0, placeholder: t("strength.off") }),
        field(t("field.variation_strength"), this.#control("input", "variation_strength", { type: "number", min: 0, max: 1, step: 0.05, placeholder: "0.1" }),
          { hint: t("variation.hint") })),
      this.hasSize ? h("div", { class: "row" }, this.#share("hires", { min: 1, max: 4, step: 0.25, placeholder: t("strength.off") }, t("hires.hint")),
        this.#share("hires_strength", { min: 0, max: 1, step: 0.05, placeholder: "0.3" })) : null,
      this.hasSize ? this.detail.element : null, this.hasSize ? this.regions.element : null, this.imagePrompts.element);
  }

  #share(name, attributes, hint = "") {
    return field(t(`field.${name}`), this.#control("input", name, { type: "number", ...attributes }), { hint });
  }

  #loras() {
    this.loraNames = h("datalist", { id: `${this.name}-loras` });
    const input = h("input", { list: this.loraNames.id, placeholder: t("lora.add") });
    const add = () => {
      const name = input.value.trim();
      if (!store.loras.some((l) => l.name === name)) return;
      input.value = "";
      this.addLora(name);
    };
    input.addEventListener("change", add);
    this.loraInput = field(t("field.loras"), input, { wide: true });
    return h("div", {}, this.loraInput, this.loraNames, this.loraList);
  }

  #showLoras() {
    this.loraInput.hidden = store.loras.length === 0;
    replace(this.loraNames, store.loras.map((l) => h("option", { value: l.name })));
    const change = (lora, values) => {
      Object.assign(lora, values);
      this.#changed();
    };
    replace(this.loraList, this.draft.loras.map((lora) => {
      const output = h("output", {}, lora.weight.toFixed(2));
      return h("div", { class: "lora" },
        h("label", {}, h("input", { type: "checkbox", checked: lora.on, onchange: (e) => change(lora, { on: e.target.checked }) }), lora.name),
        h("input", { type: "range", min: -2, max: 2, step: 0.05, value: lora.weight, "aria-label": t("lora.weight", { name: lora.name }),
          oninput: (e) => {
            change(lora, { weight: parseFloat(e.target.value) });
            output.textContent = lora.weight.toFixed(2);
          } }),
        output,
        h("button", { type: "button", class: "plain", "aria-label": t("lora.remove", { name: lora.name }),
          onclick: () => this.set({ loras: this.draft.loras.filter((l) => l !== lora) }) }, icon("close")));
    }));
  }

  // What the server expects the request to cost.
  async #forecast() {
    if (!this.element.isConnected || !this.draft.prompt.trim() || !this.isReady()) return [];
    try {
      const plan = await post("/plan", await this.request());
      const memory = bytes(plan.needs || plan.peak_device || plan.peak_host);
      return forecastLines(plan.fits ? t("forecast.fits", { time: seconds(plan.total_seconds), memory }) : t("forecast.too_large", { memory }), plan);
    } catch (error) {
      return error.code === "offline" ? [] : [h("p", {}, errorText(error))];
    }
  }
}
