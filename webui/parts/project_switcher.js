// The project that is worked on: chosen in the top bar. Its settings fill in what a request leaves out.
import { patch, post, remove } from "../lib/api.js";
import { field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { inTurn } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { ask, attempt, dialog, toast } from "./messages.js";

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
  if (!(await ask(t("project.new"), field(t("project.name"), name), t("project.create"))) || !name.value.trim()) return;
  const project = await attempt(() => post("/projects", { name: name.value.trim() }));
  if (!project) return;
  await store.readProjects();
  store.setProject(project.id);
}

async function editProject() {
  const project = store.projects.find((p) => p.id === store.project);
  if (!project) return;
  const oneByOne = inTurn();
  const change = async (values) => {
    if (await attempt(() => oneByOne(() => patch(`/projects/${project.id}`, values)))) await store.readProjects();
  };
  const text = (name) => {
    const control = h("textarea", { rows: 1, value: project[name] || "", onchange: () => change({ [name]: control.value || null }) });
    return field(t(`project.${name}`), control);
  };
  const number = (name) => {
    const control = h("input", { type: "number", value: project[name] ?? "", placeholder: t("field.default"),
      onchange: () => change({ [name]: control.value === "" ? null : Number(control.value) }) });
    return field(t(`field.${name}`), control);
  };
  const name = h("input", { value: project.name, onchange: () => name.value.trim() && change({ name: name.value.trim() }) });
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
  const answer = await dialog(t("project.delete"), h("p", {}, t("project.delete_question", { name: project.name })),
    { buttons: [{ value: "", label: t("cancel") }, { value: "keep", label: t("project.keep_images") }, { value: "trash", label: t("project.trash_images") }] });
  if (!answer) return;
  if ((await attempt(async () => ((await remove(`/projects/${project.id}?files=${answer}`)), true))) === null) return;
  document.querySelector("dialog[open]")?.close();
  store.setProject("default");
  await store.readProjects();
  toast(t("project.deleted", { name: project.name }), { action: { label: t("undo"), run: () => attempt(async () => {
    await post(`/projects/${project.id}/restore`);
    await store.readProjects();
    store.setProject(project.id);
  }) } });
}
