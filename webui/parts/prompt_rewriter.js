// A language model of the server writes a longer prompt. The person decides what becomes of it.
import { post } from "../lib/api.js";
import { field, h } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { announce, dialog, toast } from "./messages.js";

const offers = () => (store.can("/prompt/rewrite") ? store.info?.features?.rewriters || [] : []);
export const canRewrite = () => offers().length > 0;

// Triggers of elements that the prompt has and the answer lacks.
function lostTriggers(prompt, answer) {
  const has = (text, trigger) => text.toLowerCase().includes(trigger.toLowerCase());
  return store.elements.map((e) => e.trigger).filter((trigger) => has(prompt, trigger) && !has(answer, trigger));
}

class Rewriting {
  // `references()` are the images that the prompt is about: asset:ID.
  constructor(prompt, { kind, references }) {
    Object.assign(this, { prompt, kind, references });
    this.turn = 0; // answers of earlier turns are ignored
    const all = offers();
    const last = readDraft("rewriter", { provider: "" }).provider;
    this.choice = h("select", { onchange: () => {
      writeDraft("rewriter", { provider: this.choice.value });
      this.ask();
    } }, all.map((o) => h("option", { value: o.provider }, `${o.provider} · ${o.model}`)));
    this.choice.value = all.some((o) => o.provider === last) ? last : all[0].provider;
    this.place = h("p", { class: "quiet" });
    this.busy = h("div", { class: "status" }, h("span", { role: "status" }, t("rewrite.writing")), h("progress", { "aria-label": t("result.progress") }));
    this.problem = h("p", { class: "error", role: "alert" });
    this.result = h("textarea", { rows: 8 });
    this.resultField = field(t("rewrite.result"), this.result, { wide: true });
    this.notes = h("p", { class: "quiet" });
    const end = (value) => () => this.element.closest("dialog").close(value);
    this.again = h("button", { type: "button", onclick: () => this.ask() }, icon("retry"), t("retry"));
    this.takers = [h("button", { type: "button", onclick: end("insert") }, t("rewrite.insert")), h("button", { type: "button", class: "primary", onclick: end("replace") }, t("rewrite.replace"))];
    this.element = h("div", { class: "form" }, all.length > 1 ? field(t("rewrite.model"), this.choice) : null, this.place,
      h("p", { class: "resolution" }, prompt), this.busy, this.problem, this.resultField, this.notes,
      h("div", { class: "actions end" }, this.again, h("button", { type: "button", onclick: end("") }, t("rewrite.discard")), this.takers));
  }

  #show(state) {
    this.busy.hidden = state !== "busy";
    this.problem.hidden = state !== "failed";
    this.resultField.hidden = this.notes.hidden = state !== "done";
    this.again.disabled = state === "busy";
    for (const button of this.takers) button.disabled = state !== "done";
  }

  async ask() {
    const turn = ++this.turn;
    const offer = offers().find((o) => o.provider === this.choice.value) || {};
    this.place.textContent = t(this.references().length ? "rewrite.place_images" : "rewrite.place", { model: offer.model, host: offer.host });
    this.#show("busy");
    try {
      const answer = await post("/prompt/rewrite", { prompt: this.prompt, provider: this.choice.value, kind: this.kind, references: this.references(), seed: turn });
      if (turn !== this.turn) return;
      this.result.value = answer.prompt;
      const lost = lostTriggers(this.prompt, answer.prompt);
      this.notes.textContent = [answer.tokens ? t("rewrite.tokens", { n: answer.tokens }) : "", lost.length ? t("rewrite.lost", { triggers: lost.join(", ") }) : "", ...answer.warnings].filter(Boolean).join(" ");
      this.#show("done");
      announce(t("rewrite.done"));
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      this.#show("failed");
    }
  }
}

// Rewrites the prompt of a form. Undo brings the old one back.
export async function expandPrompt(form, options) {
  const before = form.draft.prompt;
  if (!before.trim()) {
    toast(t("missing.prompt"), { kind: "error" });
    return;
  }
  const rewriting = new Rewriting(before, options);
  rewriting.ask();
  const answer = await dialog(t("rewrite.title"), rewriting.element, { medium: true });
  rewriting.turn = -1;
  if (!answer) return;
  const text = rewriting.result.value.trim();
  form.set({ prompt: answer === "insert" ? `${before.trimEnd()}\n${text}` : text });
  toast(t("rewrite.taken"), { action: { label: t("undo"), run: () => form.set({ prompt: before }) } });
}
