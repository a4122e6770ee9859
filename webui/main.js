// The frame of the page: tabs, top bar, queue, connection.
import { onSignIn, sendKey } from "./lib/api.js";
import { h, isTyping, replace } from "./lib/dom.js";
import { readDraft } from "./lib/drafts.js";
import { icon } from "./lib/icons.js";
import { store } from "./lib/store.js";
import { LANGUAGES, loadTexts, t } from "./lib/text.js";
import { announce, dialog, showError } from "./parts/messages.js";
import { projectSwitcher } from "./parts/project_switcher.js";
import { QueueDrawer } from "./parts/queue_drawer.js";
import { askForKey } from "./parts/sign_in.js";
import { EditTab } from "./tabs/edit.js";
import { ElementsTab } from "./tabs/elements.js";
import { GalleryTab } from "./tabs/gallery.js";
import { GenerateTab } from "./tabs/generate.js";
import { InpaintTab } from "./tabs/inpaint.js";
import { ModelsTab } from "./tabs/models.js";
import { ShotsTab } from "./tabs/shots.js";
import { TrainingTab } from "./tabs/training.js";
import { applyTheme, preferences, SettingsTab, shortcutSheet } from "./tabs/settings.js";

const TABS = { generate: GenerateTab, edit: EditTab, inpaint: InpaintTab, gallery: GalleryTab, elements: ElementsTab, shots: ShotsTab, models: ModelsTab, training: TrainingTab, settings: SettingsTab };
const made = {}; // tabs that were opened: they keep their state
const FORMS = ["generate", "edit", "inpaint"]; // tabs that use the chosen model
let current = "";
let showPicked = () => {}; // in the top bar

function tabNamed(name) {
  if (!made[name]) {
    made[name] = new TABS[name]();
    made[name].element.hidden = true;
    document.getElementById("main").append(made[name].element);
  }
  return made[name];
}

function showTab() {
  const name = location.hash.slice(1) in TABS ? location.hash.slice(1) : "generate";
  if (current) made[current].element.hidden = true;
  current = name;
  const tab = tabNamed(name);
  tab.element.hidden = false;
  tab.shown?.();
  document.title = `${t(`tab.${name}`)} · flux2`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// The bounds and defaults of every form depend on it.
function chooseModel(model) {
  for (const name of FORMS) {
    const { form } = tabNamed(name);
    form.set({ model });
    form.showModel();
  }
  showPicked();
}

function modelPicker() {
  const picker = h("select", { "aria-label": t("model.label"), onchange: () => chooseModel(picker.value) });
  showPicked = () => {
    const { model } = made.generate?.form.draft ?? readDraft("draft.generate", {}); // after a reload no tab is open yet
    const names = store.models.filter((m) => m.type === "main").map((m) => m.name);
    if (model && !names.includes(model)) names.push(model); // it was removed, but requests still name it
    replace(picker, h("option", { value: "" }, t("model.default")), names.map((name) => h("option", { value: name }, name)));
    picker.value = model || "";
  };
  store.on("info", () => showPicked());
  showPicked();
  return picker;
}

function frame(drawer) {
  const lamp = h("span", { class: "lamp", role: "img" });
  const count = h("span", { class: "count" });
  const banner = h("p", { class: "banner", role: "status", hidden: true }, t("connection.lost"));
  const loading = h("span", { class: "quiet" });
  const showConnection = () => {
    lamp.dataset.state = store.connection;
    lamp.setAttribute("aria-label", t(`connection.${store.connection}`));
    lamp.title = t(`connection.${store.connection}`);
    banner.hidden = store.connection !== "offline";
  };
  const showCount = () => {
    const n = store.running().length + store.waiting().length;
    count.textContent = n || "";
    loading.textContent = store.loading ? t("models.loading_name", { name: store.loading }) : "";
  };
  store.on("connection", showConnection);
  for (const name of ["jobs", "info"]) store.on(name, showCount);
  showConnection();
  showCount();
  return [
    h("header", { class: "top" }, h("span", { class: "brand" }, "flux2"), projectSwitcher(), modelPicker(), loading, h("span", { class: "gap" }),
      h("button", { class: "plain", "aria-label": t("help"), title: t("help"), onclick: showHelp }, icon("help")),
      h("button", { id: "queue-button", "aria-expanded": "false", "aria-controls": "queue", onclick: () => drawer.toggle() }, icon("queue"), t("queue.title"), count),
      lamp),
    banner,
    h("nav", { "aria-label": t("nav.label") }, Object.keys(TABS).map((name) => h("a", { href: `#${name}` }, icon(name), h("span", {}, t(`tab.${name}`))))),
    h("main", { id: "main", tabindex: -1 }),
    drawer.element,
  ];
}

const showHelp = () => dialog(t("settings.shortcuts"), shortcutSheet());

function listenToKeys(drawer) {
  document.addEventListener("keydown", (event) => {
    const tab = made[current];
    if (document.querySelector("dialog[open]")) return; // the keys are the dialog's
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!event.repeat) tab.submit?.({ first: event.shiftKey });
    } else if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "X") tab.cancel?.();
    else if (event.key === "Q") drawer.toggle();
    else if (event.key === "?") showHelp();
  });
}

async function start() {
  applyTheme();
  const preferred = preferences.language || navigator.language.slice(0, 2);
  await loadTexts(preferred in LANGUAGES ? preferred : "en");
  onSignIn(() => askForKey(sendKey));
  await store.start();
  if (!store.can("/projects/{id}/elements")) delete TABS.elements;
  if (!store.can("/projects/{id}/shots")) delete TABS.shots;
  const drawer = new QueueDrawer();
  document.getElementById("app").replaceChildren(...frame(drawer).flat());
  listenToKeys(drawer);
  addEventListener("hashchange", showTab);
  document.addEventListener("flux2:send", ({ detail }) => {
    tabNamed(detail.to).receive?.(detail);
    if (detail.settings?.model !== undefined) chooseModel(detail.settings.model);
  });
  store.on("failed", ({ model, error }) => showError({ message: t("error.load", { model, message: error.message }), hint: error.hint }));
  store.on("ended", (job) => {
    if (job) announce(job.state === "completed" && !job.images?.length ? t("announce.done") : t(`announce.${job.state}`)); // a download has no image
  });
  showTab();
}

start().catch((error) => {
  showError(error);
  setTimeout(() => location.reload(), 5000); // the server is starting, or away
});
