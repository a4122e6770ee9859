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

// What failed: the members of a request that are wrong, or else the message.
const failureOf = (error) => (error.fields || []).map((f) => `${f.path}: ${f.message}`).join("; ") || error.message;
export const errorText = (error) => [failureOf(error), error.hint].filter(Boolean).join(" ");
export const showError = (error) => toast(failureOf(error), { kind: "error", hint: error.hint });

// Runs an action and shows its failure.
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    showError(error);
    return null;
  }
}

// Messages are inside the topmost dialog: outside it, nothing can be seen well, pressed or read out.
function placeMessages() {
  const host = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body;
  for (const id of ["announcer", "toasts"]) {
    const element = document.getElementById(id);
    if (element.parentElement !== host) host.append(element);
  }
}

// A modal dialog. The browser keeps the focus inside and gives it back. Resolves when it closes.
export function dialog(title, content, { wide = false, medium = false } = {}) {
  return new Promise((resolve) => {
    const id = newId("dialog");
    const element = h("dialog", { class: wide ? "wide" : medium ? "medium" : "", "aria-labelledby": id });
    element.append(
      h("header", {}, h("h2", { id }, title),
        h("button", { class: "plain", "aria-label": t("close"), onclick: () => element.close("") }, icon("close"))),
      h("div", { class: "content" }, content),
    );
    element.addEventListener("close", () => {
      placeMessages();
      resolve(element.returnValue);
      element.remove();
    });
    document.body.append(element);
    element.showModal();
    placeMessages();
  });
}
