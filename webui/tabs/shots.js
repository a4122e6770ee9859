// A story: scenes with shots, each of which becomes an image. They belong to the project that is chosen.
import { get, patch, post, remove } from "../lib/api.js";
import { h, redraw, throttled } from "../lib/dom.js";
import { readDraft } from "../lib/drafts.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { isFinal, store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { ImageDetail } from "../parts/image_detail.js";
import { attempt, toast } from "../parts/messages.js";
import { stateText } from "../parts/result_view.js";
import { ask } from "../parts/sending.js";
import { editScene, editShot, newScene, newShot } from "../parts/shot_editor.js";

const EVENTS = ["scene.created", "scene.updated", "scene.deleted", "shot.created", "shot.updated", "shot.deleted"];

export class ShotsTab {
  constructor() {
    this.scenes = [];
    this.shots = [];
    this.list = h("div", { class: "page" });
    this.missing = h("button", { onclick: () => this.#generateMissing() }, icon("generate"), t("shots.generate_missing"));
    this.match = h("button", { onclick: () => this.#match() }, icon("elements"), t("shots.match"));
    this.element = h("div", { class: "page" }, h("p", { class: "quiet" }, t("shots.intro")),
      h("div", { class: "toolbar" }, h("button", { class: "primary", onclick: () => this.#newShot() }, icon("add"), t("shots.new_shot")),
        h("button", { onclick: () => this.#newScene() }, icon("add"), t("shots.new_scene")), this.match, this.missing), this.list);
    this.reading = new Reading(() => this.#ask(store.project), (found) => this.#take(found));
    this.readSoon = throttled(150, () => this.shown());
    for (const name of EVENTS) store.on(name, () => this.readSoon());
    store.on("project", () => this.readSoon());
    store.on("ended", (job) => job?.kind === "shot" && this.readSoon());
    store.on("connection", (state) => state === "online" && this.readSoon());
    for (const name of ["progress", "jobs"]) store.on(name, (id) => this.#progress(id));
  }

  async shown() {
    if (!this.element.hidden) await this.reading.read();
  }

  #ask = (project) => attempt(async () => {
    const [scenes, shots] = await Promise.all([get(`/projects/${project}/scenes`), get(`/projects/${project}/shots`)]);
    return { project, scenes: scenes.items, shots: shots.items };
  });

  #take(found) {
    if (!found || found.project !== store.project) return; // another one was chosen meanwhile
    const isNew = JSON.stringify([found.scenes, found.shots]) !== this.drawn;
    if (isNew) ({ scenes: this.scenes, shots: this.shots } = found); // otherwise the buttons would act on objects that are replaced
    this.show();
  }

  #of = (scene) => this.shots.filter((s) => s.scene_id === (scene?.id ?? null));

  show() {
    this.missing.hidden = !this.shots.some((s) => !s.thumb_url);
    this.match.hidden = !this.shots.length || !store.elements.length;
    const known = JSON.stringify([this.scenes, this.shots]);
    if (this.drawn === known) return; // a button that is replaced during a click would lose it
    this.drawn = known;
    const loose = this.#of(null);
    this.count = 0;
    redraw(this.list, this.shots.length + this.scenes.length
      ? [loose.length ? this.#section(null, loose, -1) : null, this.scenes.map((scene, i) => this.#section(scene, this.#of(scene), i))]
      : h("div", { class: "empty quiet" }, icon("shots"), h("p", {}, t("shots.none"))));
  }

  #button(key, label, glyph, run, disabled = false) {
    return h("button", { class: "plain", "data-key": `${key}-${glyph}`, "aria-label": label, title: label, disabled, onclick: run }, icon(glyph));
  }

  #section(scene, shots, place) {
    const button = (label, glyph, run, disabled) => this.#button(scene.id, t(label, { name: scene.name }), glyph, run, disabled);
    const head = scene ? h("div", { class: "scene-head" }, h("div", { class: "what" }, h("h2", {}, scene.name), scene.text ? h("p", { class: "quiet" }, scene.text) : null),
      h("div", { class: "actions" }, button("shots.new_shot_in", "add", () => this.#newShot(scene.id)), button("shots.up", "up", () => this.#move(this.scenes, place, -1, "scenes"), place === 0),
        button("shots.down", "down", () => this.#move(this.scenes, place, 1, "scenes"), place === this.scenes.length - 1),
        button("shots.edit_named", "edit", () => editScene(scene)), button("shots.delete_named", "trash", () => this.#deleteScene(scene)))) : this.scenes.length ? h("h2", {}, t("shots.no_scene")) : null;
    return h("section", { class: "scene", "aria-label": scene?.name || t("shots.no_scene") }, head,
      shots.length ? h("ol", { class: "shots" }, shots.map((shot, i) => this.#card(shot, shots, i))) : h("p", { class: "quiet" }, t("shots.empty_scene")));
  }

  #card(shot, shots, place) {
    const n = ++this.count;
    const job = store.jobs.get(shot.last_job_id);
    const isBusy = ["queued", "running"].includes(shot.status) && !(job && isFinal(job));
    const name = t("shots.number", { n });
    const label = (key) => t(key, { name });
    const facts = [shot.shot_type, shot.character, ...shot.matched_elements.map((e) => e.name)].filter((v, i, all) => v && all.indexOf(v) === i);
    return h("li", { class: "card shot", "data-shot": shot.id },
      shot.thumb_url ? h("button", { class: "shot-image", "data-key": `${shot.id}-image`, "aria-label": label("shots.open"), onclick: () => this.#openImage(shot) }, h("img", { src: shot.thumb_url, alt: "" }))
        : h("div", { class: "shot-image no-cover" }, icon("shots")),
      h("div", { class: "card-head" }, h("h3", {}, name), this.#button(shot.id, label("shots.edit_named"), "edit", () => editShot(shot, this.scenes, n)),
        this.#button(shot.id, label("shots.delete_named"), "trash", () => this.#delete(shot, name))),
      h("p", { class: "clamped" }, shot.action || shot.prompt), facts.length ? h("p", { class: "facts" }, facts.map((f) => h("span", {}, f))) : null,
      h("p", { class: shot.status === "failed" ? "error state" : "quiet state", role: "status" }, this.#state(shot, isBusy)),
      h("div", { class: "actions" },
        h("button", { "data-key": `${shot.id}-generate`, disabled: isBusy, "aria-label": label("shots.generate_named"), onclick: () => this.#generate(shot) }, icon("generate"), t("generate.button")),
        this.#button(shot.id, label("shots.up"), "up", () => this.#move(shots, place, -1, "shots"), place === 0),
        this.#button(shot.id, label("shots.down"), "down", () => this.#move(shots, place, 1, "shots"), place === shots.length - 1)));
  }

  #state(shot, isBusy) {
    const job = store.jobs.get(shot.last_job_id);
    if (isBusy) return job ? stateText(job) : t(`state.${shot.status}`);
    if (shot.status === "failed") return job?.error?.message || t("state.failed");
    return shot.status === "cancelled" ? t("state.cancelled") : "";
  }

  // Only what moves is changed.
  #progress(id) {
    const shot = this.element.hidden ? null : this.shots.find((s) => s.last_job_id === id);
    const job = shot && store.jobs.get(id);
    const line = job && !isFinal(job) && this.list.querySelector(`[data-shot="${shot.id}"] .state`);
    if (line) line.textContent = stateText(job);
  }

  // ---- actions ----

  async #newScene() {
    if (await newScene(store.project)) await this.shown();
  }

  async #newShot(scene = this.scenes.at(-1)?.id) {
    if (await newShot(store.project, this.scenes, scene)) await this.shown();
  }

  // Shown at once; if the server refuses, its order is shown again.
  async #move(items, from, by, route) {
    const order = [...items];
    order.splice(from + by, 0, ...order.splice(from, 1));
    const changed = order.map((item, i) => ({ item, position: i + 1 })).filter(({ item, position }) => item.position !== position);
    for (const { item, position } of changed) item.position = position;
    const next = order.values();
    this[route] = this[route].map((item) => (order.includes(item) ? next.next().value : item));
    this.show();
    await attempt(() => this.reading.store(() => Promise.all(changed.map(({ item, position }) => patch(`/${route}/${item.id}`, { position })))));
  }

  #submit(shot) {
    const { model } = readDraft("draft.generate", { model: "" });
    return this.reading.store(async () => {
      const job = await post(`/shots/${shot.id}/generate`, model ? { model } : {});
      store.add(job);
      const now = this.shots.find((s) => s.id === shot.id); // the list may have been read again
      if (now) Object.assign(now, { status: "queued", last_job_id: job.id });
      this.show();
    });
  }

  #generate = (shot) => attempt(() => this.#submit(shot));

  async #generateMissing() {
    for (const shot of this.shots.filter((s) => !s.thumb_url && !["queued", "running"].includes(s.status))) if ((await attempt(async () => ((await this.#submit(shot)), true))) === null) return;
  }

  #match = () => attempt(async () => {
    const { items } = await post(`/projects/${store.project}/match-elements`);
    toast(t("shots.matched", { n: items.reduce((n, s) => n + s.matched_elements.length, 0) }));
    await this.shown();
  });

  async #openImage(shot) {
    const asset = await attempt(() => get(`/assets/${shot.thumbnail_asset_id}`));
    const items = asset ? [asset] : [];
    if (asset) new ImageDetail({ items: () => items, changed: () => {}, remove: () => attempt(async () => {
      await remove(`/assets/${items.pop().id}`);
      this.readSoon();
    }) }).open(0);
  }

  async #delete(shot, name) {
    if (await ask(t("shots.delete_named", { name }), h("p", {}, t("shots.delete_question")), t("gallery.delete"), () => remove(`/shots/${shot.id}`))) await this.shown();
  }

  async #deleteScene(scene) {
    const question = h("p", {}, t("shots.delete_scene_question"));
    if (await ask(t("shots.delete_named", { name: scene.name }), question, t("gallery.delete"), () => remove(`/scenes/${scene.id}`))) await this.shown();
  }
}
