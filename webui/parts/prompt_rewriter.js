// A language model writes a longer prompt, or says what an image shows: the text encoder of a model, or a service of the server's
// configuration. The person decides what becomes of it.
import { ApiError, get, post } from "../lib/api.js";
import { field, h } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { isFinal, store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { announce, dialog, toast } from "./messages.js";

const offers = () => store.info?.features?.rewriters || [];
const services = () => offers().filter((o) => o.provider !== "local");
// Models with that ability; the server's default model may have no name.
function localOffers(ability, model = "") {
  const names = Object.entries(store.info?.defaults || {}).filter(([, d]) => d[ability]).map(([name]) => name);
  if (names.length) return names.filter((name) => !model || name === model).map((name) => ({ provider: "local", model: name, name, host: "" }));
  return offers().filter((o) => o.provider === "local" && (ability === "rewrites" || o.describes));
}

// Services first. `model` is the one of the form; without it, every model that can.
const rewriters = (model) => (store.can("/prompt/rewrite") ? [...services(), ...localOffers("rewrites", model)] : []);
const describers = () => (store.can("/prompt/describe") ? [...services().filter((o) => o.describes), ...localOffers("describes")] : []);
export const canRewrite = () => rewriters().length > 0;
export const canDescribe = () => describers().length > 0;

// Triggers of elements that the prompt has and the answer lacks.
function lostTriggers(prompt, answer) {
  const has = (text, trigger) => text.toLowerCase().includes(trigger.toLowerCase());
  return store.elements.map((e) => e.trigger).filter((trigger) => has(prompt, trigger) && !has(answer, trigger));
}

class Writing {
  // `what` comes first in the dialog; `bodyFor(turn)` is the request; `buttons` are [value of the dialog, label].
  constructor({ path, member, all, what, prompt, bodyFor, sendsImages, buttons }) {
    Object.assign(this, { path, member, all, prompt, bodyFor, sendsImages });
    this.turn = 0; // answers of earlier turns are ignored
    this.job = ""; // the one that writes, if it is one
    const key = (o) => `${o.provider} ${o.model}`;
    const last = readDraft("rewriter", { choice: "" }).choice;
    this.choice = h("select", { onchange: () => {
      writeDraft("rewriter", { choice: key(this.offer()) });
      this.ask();
    } }, all.map((o, i) => h("option", { value: i }, `${o.provider} · ${o.model}`)));
    this.choice.value = Math.max(0, all.findIndex((o) => key(o) === last));
    this.place = h("p", { class: "quiet" });
    this.state = h("span", { role: "status" });
    this.busy = h("div", { class: "status" }, this.state, h("progress", { "aria-label": t("result.progress") }));
    this.problem = h("p", { class: "error", role: "alert" });
    this.result = h("textarea", { rows: 8 });
    this.resultField = field(t("rewrite.result"), this.result, { wide: true });
    this.notes = h("p", { class: "quiet" });
    const end = (value) => () => this.element.closest("dialog").close(value);
    this.again = h("button", { type: "button", onclick: () => this.ask() }, icon("retry"), t("retry"));
    this.takers = buttons.map(([value, label], i) => h("button", { type: "button", class: i === buttons.length - 1 ? "primary" : "", onclick: end(value) }, label));
    this.element = h("div", { class: "form" }, all.length > 1 ? field(t("rewrite.model"), this.choice) : null, this.place,
      what, this.busy, this.problem, this.resultField, this.notes,
      h("div", { class: "actions end" }, this.again, h("button", { type: "button", onclick: end("") }, t("rewrite.discard")), this.takers));
  }

  offer = () => this.all[this.choice.value];

  #show(state) {
    this.busy.hidden = state !== "busy";
    this.problem.hidden = state !== "failed";
    this.resultField.hidden = state === "failed" || (state === "busy" && !this.result.value);
    this.result.readOnly = state === "busy";
    this.notes.hidden = state !== "done";
    this.again.disabled = state === "busy";
    for (const button of this.takers) button.disabled = state !== "done";
  }

  // A model of this server writes as a job. Its text is shown while it grows.
  async #written(body, turn) {
    const job = await post(this.path, { ...body, wait: false });
    if (turn !== this.turn) {
      post(`/jobs/${job.id}/cancel`).catch(() => {});
      return null;
    }
    this.job = job.id;
    await new Promise((resolve) => {
      const source = new EventSource(`/api/v1/jobs/${job.id}/events`);
      const end = () => {
        source.close();
        resolve();
      };
      source.addEventListener("text.progress", (event) => {
        if (turn !== this.turn) return;
        const { text, tokens } = JSON.parse(event.data);
        this.state.textContent = `${t("rewrite.writing")} ${t("rewrite.tokens", { n: tokens })}`;
        this.result.value = text || "";
        this.#show("busy");
      });
      for (const name of ["job.completed", "job.failed", "job.cancelled"]) source.addEventListener(name, end);
      source.addEventListener("job.updated", (event) => isFinal(JSON.parse(event.data)) && end());
    });
    const ended = await get(`/jobs/${job.id}`);
    if (this.job === job.id) this.job = "";
    if (ended.state !== "completed") throw new ApiError(0, ended.error || { message: t("state.cancelled") });
    return ended.result;
  }

  // Ends what is under way.
  stop() {
    ++this.turn;
    if (this.job) post(`/jobs/${this.job}/cancel`).catch(() => {});
    this.job = "";
  }

  async ask() {
    this.stop();
    const turn = ++this.turn;
    const { provider, model, name, host } = this.offer();
    const local = provider === "local";
    this.place.textContent = t(local ? "rewrite.place_local" : this.sendsImages() ? "rewrite.place_images" : "rewrite.place", { model, host });
    this.state.textContent = t("rewrite.writing");
    this.result.value = "";
    this.#show("busy");
    try {
      const body = { provider, ...this.bodyFor(turn) };
      const answer = local ? await this.#written({ ...body, model: name }, turn) : await post(this.path, body);
      if (turn !== this.turn) return;
      this.result.value = answer[this.member];
      const lost = lostTriggers(this.prompt, this.result.value);
      this.notes.textContent = [answer.tokens ? t("rewrite.tokens", { n: answer.tokens }) : "", lost.length ? t("rewrite.lost", { triggers: lost.join(", ") }) : "", ...answer.warnings].filter(Boolean).join(" ");
      this.#show("done");
      announce(t("rewrite.done"));
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      this.#show("failed");
    }
  }

  // The button that was pressed; "" for none.
  async run(title) {
    this.ask();
    const answer = await dialog(title, this.element, { medium: true });
    this.stop();
    return answer;
  }
}

// Rewrites the prompt of a form. Undo brings the old one back.
export async function expandPrompt(form, { kind, references }) {
  const before = form.draft.prompt;
  const all = rewriters(form.model());
  if (!before.trim() || !all.length) {
    toast(t(all.length ? "missing.prompt" : "rewrite.none"), { kind: "error" });
    return;
  }
  const writing = new Writing({ path: "/prompt/rewrite", member: "prompt", all, prompt: before, what: h("p", { class: "resolution" }, before),
    bodyFor: (turn) => ({ prompt: before, kind, references: references(), seed: turn }), sendsImages: () => references().length > 0,
    buttons: [["insert", t("rewrite.insert")], ["replace", t("rewrite.replace")]] });
  const answer = await writing.run(t("rewrite.title"));
  if (!answer) return;
  const text = writing.result.value.trim();
  form.set({ prompt: answer === "insert" ? `${before.trimEnd()}\n${text}` : text });
  toast(t("rewrite.taken"), { action: { label: t("undo"), run: () => form.set({ prompt: before }) } });
}

// Says what an image shows; `use` gets the words if the person wants them as a prompt.
export async function describeImage(picture, use) {
  const writing = new Writing({ path: "/prompt/describe", member: "description", all: describers(), prompt: "",
    what: h("img", { src: picture.thumb || picture.url, alt: "" }), bodyFor: (turn) => ({ image: picture.asset, seed: turn }),
    sendsImages: () => true, buttons: [["use", t("describe.use")]] });
  if (await writing.run(t("describe.title"))) use(writing.result.value.trim());
}
