// Dialogs of scenes and shots. What is changed in an open one is stored at once.
import { patch, post } from "../lib/api.js";
import { field, h } from "../lib/dom.js";
import { inTurn } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { Completion } from "./completion.js";
import { dialog } from "./messages.js";
import { ask, sendChanges } from "./sending.js";

const TEXTS = ["shot_type", "character", "action", "dialogue", "prompt", "negative"];
const NUMBERS = ["seed", "width", "height", "steps"];
const LONG = ["action", "dialogue", "prompt", "negative"];

// "@" in the field offers the elements of the project.
function withElements(labelled, area) {
  const find = (word) => store.elements.filter((e) => `${e.trigger} ${e.name}`.toLowerCase().includes(word))
    .map((e) => ({ label: e.trigger, detail: `${t(`element.${e.type}`)} · ${e.name}`, thumb: e.thumb_url || "", take: () => `${e.trigger} ` }));
  labelled.insertBefore(new Completion(area, find).element, labelled.querySelector("small"));
  return labelled;
}

const sceneChoice = (scenes, value) => {
  const select = h("select", {}, h("option", { value: "" }, t("shots.no_scene")), scenes.map((s) => h("option", { value: s.id }, s.name)));
  select.value = value || "";
  return select;
};

export async function newScene(project) {
  const name = h("input", { required: true, maxlength: 200 });
  const text = h("textarea", { rows: 2 });
  return ask(t("shots.new_scene"), [field(t("shots.scene_name"), name, { hint: t("shots.scene_hint") }), field(t("shots.scene_text"), text)], t("project.create"),
    () => post(`/projects/${project}/scenes`, { name: name.value.trim(), text: text.value.trim() }));
}

export async function editScene(scene) {
  const oneByOne = inTurn();
  const control = (element, member) => sendChanges(element, (value) => oneByOne(async () => (scene = await patch(`/scenes/${scene.id}`, { [member]: value.trim() }))),
    () => scene[member]);
  await dialog(t("shots.edit_scene"), h("div", { class: "form" }, field(t("shots.scene_name"), control(h("input"), "name"), { hint: t("shots.scene_hint") }),
    field(t("shots.scene_text"), control(h("textarea", { rows: 3 }), "text"))));
}

export async function newShot(project, scenes, scene) {
  const action = h("textarea", { rows: 3, required: true });
  const choice = sceneChoice(scenes, scene);
  const content = [withElements(field(t("shots.action"), action, { hint: t("shots.action_hint") }), action), scenes.length ? field(t("shots.scene"), choice) : null];
  return ask(t("shots.new_shot"), content, t("project.create"), () => post(`/projects/${project}/shots`, { action: action.value.trim(), scene_id: choice.value || null }));
}

export async function editShot(shot, scenes, number) {
  const oneByOne = inTurn();
  const change = (values) => oneByOne(async () => (shot = await patch(`/shots/${shot.id}`, values)));
  const text = (name) => {
    const control = h(LONG.includes(name) ? "textarea" : "input", LONG.includes(name) ? { rows: 2 } : {});
    sendChanges(control, (value) => change({ [name]: value.trim() }), () => shot[name]);
    const isScript = ["action", "prompt"].includes(name);
    const labelled = field(t(name === "negative" ? "field.negative" : `shots.${name}`), control, { hint: isScript ? t(`shots.${name}_hint`) : "" });
    return isScript ? withElements(labelled, control) : labelled;
  };
  const numeric = (name) => {
    const control = h("input", { type: "number", placeholder: t("field.default") });
    return field(t(`field.${name}`), sendChanges(control, (value) => change({ [name]: value === "" ? null : Number(value) }), () => shot[name]));
  };
  const scene = sendChanges(sceneChoice(scenes, shot.scene_id), (value) => change({ scene_id: value || null }), () => shot.scene_id);
  const [type, character, ...long] = TEXTS;
  await dialog(t("shots.number", { n: number }), h("div", { class: "form" },
    h("div", { class: "row" }, field(t("shots.scene"), scene), text(type), text(character)), long.map(text), h("div", { class: "row" }, NUMBERS.map(numeric))), { medium: true });
}
