// A tab that makes images: a form on one side, the result on the other, one button.
import { post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { isFinal, store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt } from "./messages.js";
import { ResultView } from "./result_view.js";

export class Maker {
  // `check` returns a text that says what is missing, or ""; `before` the address of the image that is changed.
  constructor(form, { kind, check = () => "", extra = null, before = () => "" }) {
    this.form = form;
    this.kind = kind;
    this.check = check;
    this.before = before;
    this.result = new ResultView(kind);
    this.missing = h("p", { class: "error", role: "alert" });
    this.button = h("button", { class: "primary", title: "Ctrl+Enter", onclick: () => this.submit() }, icon("generate"), t(`${kind}.button`));
    this.element = h("div", { class: "maker" },
      h("form", { class: "side", "aria-label": t(`tab.${kind}`), onsubmit: (e) => e.preventDefault() }, form.element, this.missing, this.button),
      h("div", { class: "work" }, extra, this.result.element));
  }

  async submit({ first = false } = {}) {
    if (this.button.disabled) return; // the keyboard, too, sends one job at a time
    this.missing.textContent = this.form.draft.prompt.trim() ? this.check() : t("missing.prompt");
    if (this.missing.textContent) return;
    this.button.disabled = true; // until the server has the job, so that a double click is one job
    const before = this.before(), restore = this.result.pending();
    if (matchMedia("(max-width: 760px)").matches) this.result.element.scrollIntoView({ block: "start", behavior: "smooth" }); // it is below the form there
    const sent = await attempt(async () => {
      const request = { kind: this.kind, preview: { every: 1 }, ...(await this.form.request()) };
      if (first) request.priority = 100;
      const job = await post("/jobs", request);
      this.form.remember();
      store.add(job);
      this.result.follow(job, before);
      return job;
    });
    if (!sent) restore();
    this.button.disabled = false;
  }

  async cancel() {
    const job = store.jobs.get(this.result.job);
    if (job && !isFinal(job)) await attempt(() => post(`/jobs/${job.id}/cancel`));
  }
}
