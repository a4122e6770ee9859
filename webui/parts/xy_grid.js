// Makes one image for every pair of values of two settings, and shows them as a table.
import { get, post } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { isFinal, store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt } from "./messages.js";
import { stateText } from "./result_view.js";

const SETTINGS = ["steps", "guidance", "seed", "sampler", "schedule", "strength", "prompt"];
const NUMBERS = ["steps", "guidance", "seed", "strength"];
const MOST = 64; // images

const valuesOf = (text) => text.split(",").map((v) => v.trim()).filter(Boolean);

// A request with one setting changed. For the prompt, the first value is the text that the others replace.
export function varied(request, setting, value, values) {
  if (setting === "prompt") return { ...request, prompt: request.prompt.replaceAll(values[0], () => value) };
  return { ...request, [setting]: NUMBERS.includes(setting) ? Number(value) : value };
}

export class XyGrid {
  constructor(form, kind) {
    this.form = form;
    this.kind = kind;
    this.draft = readDraft("grid", { x: "steps", xs: "", y: "guidance", ys: "", jobs: [], shown: null });
    this.jobs = new Map(); // those of the table, by id
    this.table = h("div", { class: "xy" });
    this.message = h("p", { class: "error", role: "alert" });
    this.button = h("button", { type: "button", onclick: async () => {
      this.button.disabled = true; // a double click is one grid
      await attempt(() => this.#start());
      this.button.disabled = false;
    } }, t("grid.start"));
    const choice = (axis) => {
      const select = h("select", { onchange: () => this.#set({ [axis]: select.value }) }, SETTINGS.map((s) => h("option", { value: s }, t(`field.${s}`))));
      select.value = this.draft[axis];
      return field(t(`grid.${axis}`), select);
    };
    const values = (axis) => field(t(`grid.${axis}_values`), h("input", { value: this.draft[axis], placeholder: "4, 8, 16", oninput: (e) => this.#set({ [axis]: e.target.value }) }));
    this.element = h("details", {}, h("summary", {}, t("grid.title")), h("div", { class: "form" }, h("p", { class: "quiet" }, t("grid.hint")),
      h("div", { class: "row" }, choice("x"), values("xs")), h("div", { class: "row" }, choice("y"), values("ys")), this.message,
      this.button));
    store.on("jobs", (id) => this.#follow(id));
    if (this.draft.shown) this.#read();
  }

  #set(values) {
    Object.assign(this.draft, values);
    writeDraft("grid", this.draft);
  }

  // `prompt` is that of the request: a template may have added to it.
  #missing(xs, ys, prompt) {
    if (!this.form.draft.prompt.trim()) return t("missing.prompt");
    if (!xs.length || !ys.length) return t("grid.missing");
    for (const [setting, values] of [[this.draft.x, xs], [this.draft.y, ys]]) {
      const wrong = NUMBERS.includes(setting) ? values.find((v) => !Number.isFinite(Number(v))) : undefined;
      if (wrong !== undefined) return t("grid.no_number", { setting: t(`field.${setting}`), value: wrong });
      if (setting === "prompt" && !prompt.includes(values[0])) return t("grid.not_in_prompt", { value: values[0] });
    }
    return xs.length * ys.length > MOST ? t("grid.too_many", { most: MOST }) : "";
  }

  // Without a seed, all images get the same one: otherwise they could not be compared.
  async #start() {
    const { x, y } = this.draft;
    const xs = valuesOf(this.draft.xs), ys = valuesOf(this.draft.ys);
    const base = { kind: this.kind, ...(await this.form.request()), count: 1 };
    this.message.textContent = this.#missing(xs, ys, base.prompt);
    if (this.message.textContent) return;
    base.seed ??= Math.floor(Math.random() * 2 ** 31);
    this.form.remember();
    const ids = [];
    for (const [yValue, xValue] of ys.flatMap((v) => xs.map((w) => [v, w]))) {
      const job = await attempt(() => post("/jobs", varied(varied(base, x, xValue, xs), y, yValue, ys)));
      if (!job) break; // the queue is full, say
      store.add(job);
      this.jobs.set(job.id, store.jobs.get(job.id)); // may have ended already
      ids.push(job.id);
    }
    if (!ids.length) return;
    this.#set({ jobs: ids, shown: { x, y, xs, ys } });
    this.#draw();
  }

  async #read() {
    for (const id of this.draft.jobs) {
      const read = await get(`/jobs/${id}`).catch(() => null);
      const job = store.jobs.get(id) || read; // events may be later than the answer
      if (job) this.jobs.set(id, job);
    }
    if (this.draft.shown) this.#draw(); // it may have been closed
  }

  #follow(id) {
    const changed = id ? [id] : this.draft.jobs;
    const before = changed.map((one) => this.jobs.get(one)?.state).join();
    for (const one of changed) if (this.jobs.has(one) && store.jobs.has(one)) this.jobs.set(one, store.jobs.get(one));
    if (this.draft.shown && changed.map((one) => this.jobs.get(one)?.state).join() !== before) this.#draw();
  }

  #draw() {
    const { x, y, xs, ys } = this.draft.shown;
    const close = h("button", { class: "chip", onclick: () => {
      this.#set({ jobs: [], shown: null });
      replace(this.table);
    } }, t("close"));
    replace(this.table, h("table", {}, h("caption", {}, `${t(`field.${x}`)} × ${t(`field.${y}`)} `, close),
      h("thead", {}, h("tr", {}, h("td"), xs.map((v) => h("th", { scope: "col" }, v)))),
      h("tbody", {}, ys.map((v, row) => h("tr", {}, h("th", { scope: "row" }, v), xs.map((_, column) => h("td", {}, this.#cell(this.draft.jobs[row * xs.length + column]))))))));
  }

  #cell(id) {
    const job = this.jobs.get(id);
    const image = job?.images?.[0];
    if (image && isFinal(job)) return h("a", { href: image.url, target: "_blank" }, h("img", { src: image.thumb_url, alt: job.request?.prompt || "" }));
    return h("span", { class: "quiet" }, job ? stateText(job) : "–");
  }
}
