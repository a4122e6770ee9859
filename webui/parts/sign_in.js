// Asks for the server's key until it is right.
import { field, h } from "../lib/dom.js";
import { t } from "../lib/text.js";
import { ask } from "./sending.js";

let asking = null; // several calls may need it at a time
export function askForKey(signIn) {
  asking ??= (async () => {
    const key = h("input", { type: "password", autocomplete: "current-password", required: true });
    const send = () => signIn(key.value);
    while ((await ask(t("signin.title"), field(t("signin.label"), key), t("signin.button"), send, { cancel: false })) === null);
  })().finally(() => (asking = null));
  return asking;
}
