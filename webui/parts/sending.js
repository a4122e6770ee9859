// Dialogs and fields that send something. They stay as they are until the server has taken it: a refusal is said beside what was
// typed, and nothing of that is lost.
import { ApiError } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { t } from "../lib/text.js";
import { dialog, errorText, showError } from "./messages.js";

const FIRST_FIELD = "input:not([type=search], [type=checkbox], [type=file]), textarea, select";
const isOpen = (element) => Boolean(element.closest("dialog")?.open);

// A form inside a dialog. `buttons` are { label, send, primary, danger }; Enter in a field presses the primary one. While one sends,
// none can be pressed. `done(answer)` is called when the server has taken it. `more` are elements before the buttons.
export class SendForm {
  #buttons;

  constructor(content, buttons, { done, more = [] }) {
    this.done = done;
    this.sending = null; // resolves when the server has answered
    this.problem = h("p", { class: "error", role: "alert" });
    this.#buttons = buttons.map(({ label, send, primary, danger }) => h("button", { type: primary ? "submit" : "button", class: primary ? "primary" : danger ? "danger" : "",
      onclick: (event) => primary || this.#send(send, event.target) }, label));
    const first = buttons.findIndex((b) => b.primary);
    this.element = h("form", { class: "form", onsubmit: (event) => {
      event.preventDefault();
      if (first >= 0) this.#send(buttons[first].send, this.#buttons[first]);
    } }, content, this.problem, h("div", { class: "actions end" }, more, this.#buttons));
    this.element.querySelector(FIRST_FIELD)?.setAttribute("autofocus", "");
  }

  // Whether there is something to send.
  set ready(ready) {
    for (const button of this.#buttons) button.disabled = !ready;
  }

  #send(send, pressed) {
    this.sending ??= this.#run(send, pressed).finally(() => (this.sending = null));
  }

  async #run(send, pressed) {
    const buttons = this.#buttons.filter((button) => !button.disabled);
    this.problem.textContent = "";
    for (const button of buttons) button.disabled = true;
    pressed.setAttribute("aria-busy", "true");
    try {
      this.done(await send());
    } catch (error) {
      if (!isOpen(this.element)) showError(error); // it was closed meanwhile
      this.problem.textContent = errorText(error);
      this.problem.scrollIntoView({ block: "nearest" });
    } finally {
      pressed.removeAttribute("aria-busy");
      for (const button of buttons) button.disabled = false;
      if (isOpen(this.element) && !this.element.contains(document.activeElement)) pressed.focus(); // a disabled button loses it
    }
  }
}

// A dialog with such a form and a button that closes it. Resolves to the answer of the server (true where that is empty), or to null
// if the dialog was closed without one.
export async function sendDialog(title, content, buttons, { cancel = true, more = [], setUp = () => {}, ...options } = {}) {
  let answer = null;
  const close = () => form.element.closest("dialog")?.close("");
  const form = new SendForm(content, buttons, { more: [more, cancel ? h("button", { type: "button", onclick: close }, t("cancel")) : null], done: (found) => {
    answer = found ?? true;
    close();
  } });
  setUp(form);
  await dialog(title, form.element, options);
  await form.sending; // it was closed while the server worked
  return answer;
}

// With one button.
export const ask = (title, content, label, send, options) => sendDialog(title, content, [{ label, send, primary: true }], options);

// Sends each of the items. Those that are refused stay in the list, so that the next try sends them alone.
export async function sendEach(items, send) {
  const refused = [], count = items.length;
  for (const item of items.splice(0)) await send(item).catch((error) => refused.push({ item, error }));
  items.push(...refused.map(({ item }) => item));
  if (!refused.length) return count;
  if (count === 1) throw refused[0].error;
  throw new ApiError(0, { message: t("models.bulk_done", { done: count - refused.length, failed: refused.length }), hint: errorText(refused[0].error) });
}

// Sends what is in a control when it changes, and then shows what the server has. What is typed meanwhile stays, and so does what the
// server refuses, with its reason below.
export function sendChanges(control, send, stored) {
  const problem = h("p", { class: "error", role: "alert" });
  const say = (words) => {
    problem.textContent = words;
    if (!words) problem.remove();
    else if (!problem.isConnected) control.after(problem);
    words ? control.setAttribute("aria-invalid", "true") : control.removeAttribute("aria-invalid");
  };
  control.value = stored() ?? "";
  control.addEventListener("change", async () => {
    const sent = control.value;
    try {
      await send(sent);
      if (control.value !== sent) return;
      say("");
      control.value = stored() ?? "";
    } catch (error) {
      if (!isOpen(control)) showError(error);
      else if (control.value === sent) say(errorText(error));
    }
  });
  return control;
}
