// The project that is worked on: chosen in the top bar. Its settings fill in what a request leaves out.
import { patch, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { inTurn } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt, dialog, toast } from "./messages.js";
import { ask, sendChanges, sendDialog } from "./sending.js";

const TEXTS = ["style_prompt", "negative", "notes"];
const NUMBERS = ["width", "height", "seed"];

export function projectSwitcher() {
  const select = h("select", { "aria-label": t("project.label"), onchange: () => (select.value === "+" ? create().then(show) : store.setProject(select.value)) });
  const show = () => {
    replace(select, store.projects.map((p) => h("option", { value: p.id }, p.name)), h("option", { value: "+" }, t("project.new")));
    select.value = store.project;
  };
  for (const name of ["project", "projects"]) store.on(name, show);
  show();
  return [select, h("button", { class: "plain", "aria-label": t("project.settings"), title: t("project.settings"), onclick: editProject }, icon("settings"))];
}

async function create() {
  const name = h("input", { required: true });
  const project = await ask(t("project.new"), field(t("project.name"), name), t("project.create"), () => post("/projects", { name: name.value.trim() }));
  if (!project) return;
  await store.readProjects().catch(() => {});
  store.setProject(project.id);
}

async function editProject() {
  let project = store.projects.find((p) => p.id === store.project);
  if (!project) return;
  const oneByOne = inTurn();
  const change = (values) => oneByOne(async () => {
    project = await patch(`/projects/${project.id}`, values);
    store.readProjects().catch(() => {});
  });
  const text = (name) => field(t(`project.${name}`), sendChanges(h("textarea", { rows: 1 }), (value) => change({ [name]: value || null }), () => project[name]));
  const number = (name) => field(t(`field.${name}`), sendChanges(h("input", { type: "number", placeholder: t("field.default") }),
    (value) => change({ [name]: value === "" ? null : Number(value) }), () => project[name]));
  const name = sendChanges(h("input"), (value) => change({ name: value.trim() }), () => project.name);
  const isDefault = project.id === "default";
  await dialog(t("project.settings"), h("div", { class: "form" }, isDefault ? h("p", { class: "quiet" }, t("project.default_hint")) : null,
    field(t("project.name"), name), TEXTS.map(text), h("div", { class: "row" }, NUMBERS.map(number)),
    h("div", { class: "actions" }, !store.can("/projects/{id}/export") ? null : h("a", { class: "button", href: `/api/v1/projects/${project.id}/export`, download: `${project.name}.zip` }, icon("download"), t("project.export")),
      store.can("/projects/import") ? importButton() : null, isDefault ? null : h("button", { class: "danger", onclick: () => deleteProject(project) }, icon("trash"), t("project.delete")))));
}

function importButton() {
  const file = h("input", { type: "file", accept: ".zip", class: "unseen", "aria-label": t("project.import"), onchange: async () => {
    const form = new FormData();
    form.append("file", file.files[0], file.files[0].name);
    const project = await attempt(() => post("/projects/import", form));
    file.value = "";
    if (!project) return;
    await store.readProjects();
    store.setProject(project.id);
    file.closest("dialog")?.close();
    toast(t("project.imported", { name: project.name }));
  } });
  return h("label", { class: "button" }, icon("add"), t("project.import"), file);
}

async function deleteProject(project) {
  const button = (files) => ({ label: t(`project.${files}_images`), send: () => remove(`/projects/${project.id}?files=${files}`) });
  if (!(await sendDialog(t("project.delete"), h("p", {}, t("project.delete_question", { name: project.name })), [button("keep"), button("trash")]))) return;
  document.querySelector("dialog[open]")?.close();
  store.setProject("default");
  await store.readProjects();
  toast(t("project.deleted", { name: project.name }), { action: { label: t("undo"), run: () => attempt(async () => {
    await post(`/projects/${project.id}/restore`);
    await store.readProjects();
    store.setProject(project.id);
  }) } });
}
