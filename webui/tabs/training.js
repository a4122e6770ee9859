// Training runs: start one from chosen images, watch it, try its checkpoints.
import { get, post, remove } from "../lib/api.js";
import { field, h, replace, throttled } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { bytes, seconds, t } from "../lib/text.js";
import { sendTo } from "../parts/image_actions.js";
import { forecastLines } from "../parts/forecast.js";
import { imageInput } from "../parts/image_input.js";
import { attempt, toast } from "../parts/messages.js";
import { Plot } from "../parts/plot.js";
import { ask } from "../parts/sending.js";

const PRESETS = ["", "character", "style", "edit", "concept"];
const NUMBERS = ["max_train_steps", "network_dim", "learning_rate", "save_every_n_steps"];
const OVER = ["completed", "failed", "stopped"];

// A new run: its images with captions, and the few options that people change.
class NewRun {
  constructor(started) {
    this.started = started;
    this.draft = readDraft("training", { name: "", preset: "", pictures: [], prompt: "", max_train_steps: "", network_dim: "", learning_rate: "",
      save_every_n_steps: "" });
    this.list = h("div", { class: "captions" });
    this.forecast = h("div", { role: "status" });
    this.planning = new Reading(() => this.#plan(), (plan) => this.#showPlan(plan));
    const text = (name, attributes = {}) => h("input", { ...attributes, value: this.draft[name], oninput: (e) => this.#set(name, e.target.value) });
    const preset = h("select", { onchange: () => this.#set("preset", preset.value) }, PRESETS.map((p) => h("option", { value: p }, t(`preset.${p || "none"}`))));
    preset.value = this.draft.preset;
    this.button = h("button", { type: "button", class: "primary", onclick: () => this.#start() }, t("training.start"));
    this.element = h("form", { class: "form", "aria-label": t("training.new"), onsubmit: (e) => e.preventDefault() },
      h("div", { class: "row" }, field(t("training.name"), text("name")), field(t("training.preset"), preset)),
      h("fieldset", {}, h("legend", {}, t("training.images")), this.list, imageInput((p) => this.add([{ ...p, caption: "" }]), { several: true })),
      h("div", { class: "row" }, NUMBERS.map((n) => field(t(`training.${n}`), text(n, { inputmode: "decimal", placeholder: t("field.default") })))),
      field(t("training.sample"), text("prompt"), { wide: true }),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => this.#look() }, t("training.forecast")),
        this.button),
      this.forecast);
    this.#show();
  }

  #set(name, value) {
    this.draft[name] = value;
    writeDraft("training", this.draft);
    replace(this.forecast); // it was for other values
  }

  add(pictures) {
    this.#set("pictures", [...this.draft.pictures, ...pictures]);
    this.#show();
  }

  #show() {
    replace(this.list, this.draft.pictures.map((picture, i) => h("div", { class: "caption" },
      h("img", { src: picture.thumb, alt: t("references.nth", { n: i + 1 }) }),
      h("textarea", { rows: 2, value: picture.caption, "aria-label": t("training.caption", { n: i + 1 }), placeholder: t("training.caption", { n: i + 1 }),
        oninput: (e) => {
          picture.caption = e.target.value;
          this.#set("pictures", this.draft.pictures);
        } }),
      h("button", { type: "button", class: "plain", "aria-label": t("references.remove", { n: i + 1 }), onclick: () => {
        this.#set("pictures", this.draft.pictures.filter((p) => p !== picture));
        this.#show();
      } }, icon("close")))));
  }

  #request() {
    const d = this.draft;
    const options = {};
    for (const name of NUMBERS) {
      const text = d[name].trim();
      if (text) options[name] = Number.isFinite(Number(text)) ? Number(text) : text; // the server says what is wrong with it
    }
    if (d.prompt.trim()) Object.assign(options, { sample_prompts: [d.prompt.trim()], sample_every_n_steps: options.save_every_n_steps || 100 });
    const { model } = readDraft("draft.generate", { model: "" }); // the one that the top bar shows
    return { name: d.name.trim(), preset: d.preset || null, model: model || null, options,
      dataset: { assets: d.pictures.map((p) => ({ asset_id: `ast_${p.asset.replace("asset:", "")}`, caption: p.caption })) } };
  }

  #look() {
    replace(this.forecast, h("p", { class: "quiet" }, t("training.measuring")));
    return this.planning.read();
  }

  // Nothing if the run was changed meanwhile.
  async #plan() {
    const request = this.#request();
    const plan = await attempt(() => post("/training", { ...request, dry: true }));
    return JSON.stringify(request) === JSON.stringify(this.#request()) ? plan : null;
  }

  #showPlan(plan) {
    replace(this.forecast);
    if (!plan) return;
    const memory = bytes((plan.device_gib || plan.host_gib || 0) * 2 ** 30);
    const words = plan.fits === false ? t("training.too_large", { memory })
      : t("training.needs", { images: plan.items, steps: plan.steps, time: seconds(plan.eta_s || 0), memory });
    replace(this.forecast, forecastLines(words, { ...plan, notes: plan.warnings }));
  }

  async #start() {
    this.button.disabled = true; // a double click is one run
    const run = await attempt(() => post("/training", this.#request()));
    this.button.disabled = false;
    if (run) this.started(run);
  }
}

class RunView {
  constructor() {
    this.head = h("div");
    this.loss = new Plot(t("training.loss"));
    this.rate = new Plot(t("training.rate"));
    this.samples = h("div", { class: "strip" });
    this.checkpoints = h("ul", { class: "checkpoints" });
    this.element = h("div", { class: "run", hidden: true }, this.head, this.loss.element, this.samples, h("h2", {}, t("training.checkpoints")), this.checkpoints,
      this.rate.element);
    this.reading = new Reading(() => this.#ask(this.run?.id), (found) => found && this.#take(found));
    this.readSoon = throttled(700, () => this.read());
    for (const name of ["train.metrics", "train.sample", "train.checkpoint"])
      store.on(name, (data) => data.run_id === this.run?.id && this.readSoon());
    store.on("train.state", (data) => (data.run?.id || data.id) === this.run?.id && this.readSoon());
  }

  async show(run) {
    this.run = run;
    this.element.hidden = false;
    await this.read();
  }

  async read() {
    if (this.run) await this.reading.read();
  }

  #ask = (id) => attempt(() => Promise.all([get(`/training/${id}`), get(`/training/${id}/metrics?max=300&keys=loss,lr`), get(`/training/${id}/samples`),
    get(`/training/${id}/checkpoints`)]));

  #take([run, metrics, samples, checkpoints]) {
    if (run.id !== this.run?.id) return; // another one was chosen meanwhile
    this.run = run;
    const points = (key) => (metrics.step || []).map((x, i) => ({ x, y: metrics[key]?.[i], low: metrics[`${key}_min`]?.[i], high: metrics[`${key}_max`]?.[i] }));
    this.loss.show(points("loss"));
    this.rate.show(points("lr"));
    // What has not changed is left alone: a button that is replaced during a click would lose it.
    const changed = (part, value) => {
      const text = JSON.stringify(value);
      const differs = this.shown?.[part] !== text;
      this.shown = { ...this.shown, [part]: text };
      return differs;
    };
    this.#showHead(run);
    if (changed("samples", samples)) replace(this.samples, samples.items.map((s) => h("figure", {}, h("img", { src: s.url, alt: s.prompt }), h("figcaption", { class: "quiet" }, t("training.step", { n: s.step })))));
    const { items } = checkpoints;
    if (changed("checkpoints", [run.id, items]))
      replace(this.checkpoints, items.length ? items.map((c) => this.#checkpoint(c)) : h("li", { class: "quiet" }, t("training.no_checkpoints")));
  }

  #showHead(run) {
    const act = (label, path, body) => h("button", { onclick: () => attempt(async () => {
      await post(`/training/${run.id}/${path}`, body);
      this.readSoon();
    }) }, t(label));
    const over = OVER.includes(run.state);
    if (this.headOf !== `${run.id}|${run.state}`) {
      this.headOf = `${run.id}|${run.state}`;
      this.line = h("p");
      this.lossNow = h("p", { class: "quiet" });
      this.bar = h("progress", { "aria-label": t("result.progress") });
      replace(this.head, h("h2", {}, run.name), this.line, this.lossNow, this.bar, run.error ? h("p", { class: "error" }, run.error.message || String(run.error)) : null,
        h("div", { class: "actions" },
          ["paused", "stopped", "failed"].includes(run.state) ? act("training.resume", "resume") : over ? null : act("training.pause", "pause"),
          over ? null : act("training.stop", "stop", { save: true })));
    }
    const left = !over && run.eta_s ? ` · ${t("time.left", { time: seconds(run.eta_s) })}` : "";
    const loss = run.loss_avg ?? run.loss;
    this.line.textContent = `${t(`run.${run.state}`)} · ${run.step} / ${run.steps}${left}`;
    this.lossNow.textContent = loss ? t("training.loss_now", { loss: loss.toPrecision(4) }) : "";
    this.bar.max = run.steps || 1;
    this.bar.value = run.step || 0;
  }

  #checkpoint(c) {
    const path = `/training/${this.run.id}/checkpoints/${c.step}`;
    return h("li", {}, h("span", {}, t("training.step", { n: c.step })), c.bytes ? h("span", { class: "quiet" }, bytes(c.bytes)) : null,
      h("button", { onclick: () => attempt(async () => {
        const tried = await post(`${path}/try`);
        sendTo("generate", { lora: tried.adapter });
        toast(t("training.trying", { name: tried.adapter }));
      }) }, t("training.try")),
      c.kept ? h("span", { class: "badge" }, t("training.kept")) : h("button", { onclick: () => attempt(async () => {
        await post(`${path}/keep`);
        this.readSoon();
      }) }, t("training.keep")),
      h("a", { class: "button", href: `/api/v1${path}/file`, download: `${this.run.name}-${c.step}.safetensors` }, icon("download"), t("image.download")),
      h("button", { class: "plain", "aria-label": t("training.delete", { n: c.step }), title: t("training.delete", { n: c.step }), onclick: async () => {
        if (await ask(t("training.delete", { n: c.step }), h("p", {}, t("training.delete_question")), t("gallery.delete"), () => remove(path))) this.readSoon();
      } }, icon("trash")));
  }
}

export class TrainingTab {
  constructor() {
    this.runs = h("ul", { class: "runs" });
    this.view = new RunView();
    this.form = null;
    this.host = h("div");
    this.element = h("div", { class: "maker" }, h("div", { class: "side" },
      h("button", { class: "primary", onclick: () => this.#new() }, icon("add"), t("training.new")), this.runs), h("div", { class: "work" }, this.host, this.view.element));
    this.reading = new Reading(() => attempt(() => get("/training?limit=50")), (page) => page && this.#show(page.items));
    store.on("train.state", throttled(300, () => this.#readRuns()));
    store.on("missed", () => this.shown());
  }

  // Images that were chosen in the gallery start a new run; their prompts are captions to begin with.
  receive({ pictures }) {
    if (!pictures?.length) return;
    if (!this.newRun) this.#new();
    this.newRun.add(pictures);
  }

  async shown() {
    if (!this.element.hidden) await Promise.all([this.#readRuns(), this.view.read()]);
  }

  async #readRuns() {
    if (!this.element.hidden) await this.reading.read();
  }

  #show(items) {
    replace(this.runs, items.map((run) => h("li", {}, h("button", { class: "plain", "aria-pressed": String(run.id === this.view.run?.id), onclick: () => this.#open(run) },
      h("span", { class: "one-line" }, run.name), h("span", { class: "quiet" }, `${t(`run.${run.state}`)} ${run.step}/${run.steps}`)))));
    if (!this.newRun && !this.view.run && (!items.length || readDraft("training_view", { isNew: false }).isNew)) this.#new();
    else if (!this.newRun && !this.view.run) this.#open(items[0]);
  }

  #new() {
    writeDraft("training_view", { isNew: true }); // a reload opens it again
    this.newRun = new NewRun((run) => this.#open(run));
    this.view.element.hidden = true;
    this.view.run = null;
    replace(this.host, this.newRun.element);
  }

  async #open(run) {
    this.newRun = null;
    writeDraft("training_view", { isNew: false });
    replace(this.host);
    await this.view.show(run);
    await this.#readRuns();
  }
}
