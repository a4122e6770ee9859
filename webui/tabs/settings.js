// How the page looks and speaks, and the session.
import { remove } from "../lib/api.js";
import { field, h } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { store } from "../lib/store.js";
import { LANGUAGES, t } from "../lib/text.js";
import { attempt } from "../parts/messages.js";

export const preferences = readDraft("preferences", { theme: "auto", language: "" });

export function applyTheme() {
  document.documentElement.dataset.theme = preferences.theme;
}

export const SHORTCUTS = ["generate", "first", "cancel", "history", "queue", "help", "brush", "zoom", "gallery", "detail"];

export function shortcutSheet() {
  return h("dl", { class: "shortcuts" }, SHORTCUTS.map((name) => [h("dt", {}, h("kbd", {}, t(`keys.${name}`))), h("dd", {}, t(`keys.${name}.what`))]));
}

export class SettingsTab {
  constructor() {
    const choice = (name, values, labels, after) => {
      const control = h("select", { onchange: () => {
        preferences[name] = control.value;
        writeDraft("preferences", preferences);
        after();
      } }, values.map((v, i) => h("option", { value: v }, labels[i])));
      control.value = preferences[name];
      return field(t(`settings.${name}`), control);
    };
    const { version, devices } = store.info;
    this.element = h("div", { class: "page narrow" },
      choice("theme", ["auto", "light", "dark"], ["auto", "light", "dark"].map((v) => t(`theme.${v}`)), applyTheme),
      choice("language", ["", ...Object.keys(LANGUAGES)], [t("settings.browser"), ...Object.values(LANGUAGES)], () => location.reload()),
      h("h2", {}, t("settings.shortcuts")), shortcutSheet(),
      h("h2", {}, t("settings.about")), h("p", {}, version), devices.map((d) => h("p", { class: "quiet" }, d.name)),
      h("p", {}, h("a", { href: "/api/v1/openapi.json" }, t("settings.api"))),
      h("button", { onclick: () => attempt(async () => {
        await remove("/session");
        location.reload();
      }) }, t("settings.sign_out")));
  }
}
