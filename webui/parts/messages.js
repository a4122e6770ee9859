// Messages to the person: toasts, dialogs, and what a screen reader announces.
import { h, newId } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";

const SHOWN_MS = 8000;

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

export function toast(text, { kind = "info", hint = "", action = null } = {}) {
  const close = () => element.remove();
  const element = h(
    "div", { class: `toast ${kind}` },
    h("div", {}, h("p", {}, text), hint ? h("p", { class: "quiet" }, hint) : null),
    action ? h("button", { onclick: () => (close(), action.run()) }, action.label) : null,
    h("button", { class: "plain", "aria-label": t("close"), onclick: close }, icon("close")),
  );
  const toasts = document.getElementById("toasts");
  // An error that is shown already moves to the end: without a connection, the same one comes again and again.
  const isSame = (other) => other.className === element.className && other.firstChild.textContent === element.firstChild.textContent;
  if (kind === "error") [...toasts.children].find(isSame)?.remove();
  toasts.append(element);
  if (kind !== "error") setTimeout(close, SHOWN_MS);
}

export function showError(error) {
  const fields = (error.fields || []).map((f) => `${f.path}: ${f.message}`).join("; ");
  toast(fields || error.message, { kind: "error", hint: error.hint });
}

// Runs an action and shows its failure.
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    showError(error);
    return null;
  }
}

// A modal dialog. The browser keeps the focus inside and gives it back. Resolves when it closes.
export function dialog(title, content, { buttons = [], wide = false, medium = false } = {}) {
  return new Promise((resolve) => {
    const id = newId("dialog");
    const element = h("dialog", { class: wide ? "wide" : medium ? "medium" : "", "aria-labelledby": id });
    const end = (value) => {
      element.close(value);
    };
    element.append(
      h("header", {}, h("h2", { id }, title),
        h("button", { class: "plain", "aria-label": t("close"), onclick: () => end("") }, icon("close"))),
      h("div", { class: "content" }, content),
      buttons.length
        ? h("footer", {}, buttons.map((b) => h("button", { class: b.primary ? "primary" : "", onclick: () => end(b.value) }, b.label)))
        : "",
    );
    element.addEventListener("close", () => {
      resolve(element.returnValue);
      element.remove();
    });
    document.body.append(element);
    element.showModal();
  });
}

// A question with one button that says yes. Resolves to whether it was pressed; Enter in a field presses it.
export async function ask(title, content, label) {
  const form = h("form", { method: "dialog" }, content, h("div", { class: "actions end" },
    h("button", { type: "button", onclick: () => form.closest("dialog").close("") }, t("cancel")), h("button", { class: "primary", value: "yes" }, label)));
  return (await dialog(title, form)) === "yes";
}

// Asks for the server's key until it is right.
let asking = null;
export function askForKey(signIn) {
  asking ??= (async () => {
    for (let wrong = ""; ; ) {
      const input = h("input", { type: "password", autocomplete: "current-password", id: newId("key") });
      const form = h("form", { method: "dialog" }, h("label", { for: input.id }, t("signin.label")), input,
        wrong ? h("p", { class: "error", role: "alert" }, wrong) : null, h("button", { class: "primary" }, t("signin.button")));
      await dialog(t("signin.title"), form);
      if (!input.value) continue; // closed without an answer: an empty key would count as a wrong one
      try {
        await signIn(input.value);
        return;
      } catch (error) {
        wrong = error.message;
      }
    }
  })().finally(() => (asking = null));
  return asking;
}
