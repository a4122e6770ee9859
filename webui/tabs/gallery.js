// All finished images. The server searches and counts; the page holds what was scrolled to.
import { get, post, remove } from "../lib/api.js";
import { field, h, replace, throttled } from "../lib/dom.js";
import { readDraft, writeDraft } from "../lib/drafts.js";
import { imageOf, ImageList } from "../lib/image_list.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { compare } from "../parts/compare.js";
import { ImageDetail } from "../parts/image_detail.js";
import { ImageFilter } from "../parts/image_filter.js";
import { ImageGrid } from "../parts/image_grid.js";
import { pictureOfAsset, sendTo } from "../parts/image_actions.js";
import { attempt, dialog, toast } from "../parts/messages.js";
import { ask, sendEach } from "../parts/sending.js";

export class GalleryTab {
  constructor() {
    const kept = readDraft("gallery", { size: 172 });
    this.list = new ImageList();
    this.filter = new ImageFilter(() => this.search());
    this.grid = new ImageGrid({ size: kept.size, open: (place) => this.detail.open(place).then(() => this.filter.refresh()), selected: () => this.#showBar(),
      need: (count) => attempt(() => this.list.need(count, () => this.#show())) });
    this.detail = new ImageDetail({ items: () => this.list.items, changed: (asset) => this.#changed(asset), remove: (item) => this.#delete([item]) });
    this.empty = h("p", { class: "empty quiet", hidden: true });
    this.count = h("span", { class: "quiet", role: "status" });
    this.bar = h("div", { class: "toolbar" });
    const size = h("input", { type: "range", min: 96, max: 360, step: 4, value: kept.size, "aria-label": t("gallery.size"), oninput: () => {
      this.grid.setSize(Number(size.value));
      writeDraft("gallery", { size: Number(size.value) });
    } });
    this.filter.element.firstChild.append(this.count, size);
    this.element = h("div", { class: "gallery-tab" }, this.filter.element, this.bar, this.empty, this.grid.element);
    store.on("ended", (job) => job?.state === "completed" && this.#addNew(job));
    this.searchAgainSoon = throttled(300, () => this.#searchAgain());
    store.on("asset.updated", (asset) => this.#updated(asset));
    store.on("asset.deleted", ({ id, trash }) => (this.list.filter.trash && trash ? this.searchAgainSoon() : this.#forget([id])));
    const readFilterSoon = throttled(300, () => this.isRead && this.filter.refresh());
    for (const name of ["board.created", "board.updated", "board.deleted"]) store.on(name, readFilterSoon);
    for (const name of ["project", "missed"]) store.on(name, () => this.isRead && this.#begin());
    this.#showBar();
  }

  shown() {
    if (!this.isRead) this.#begin();
    else this.#show();
  }

  async #begin() {
    this.isRead = true;
    await this.filter.refresh();
    await this.search();
  }

  async search() {
    const found = await attempt(() => this.list.search(this.filter.values()));
    if (!found) return;
    this.grid.choose([]);
    this.grid.reset();
    this.#show();
  }

  // What is shown is not all of it any more: place and selection stay.
  async #searchAgain() {
    if (this.isRead && (await attempt(() => this.list.search(this.filter.values())))) this.#show();
  }

  #show() {
    const { items, total } = this.list;
    this.grid.show(items, total);
    this.count.textContent = t("gallery.count", { n: total });
    this.empty.hidden = total > 0;
    this.empty.textContent = t(this.list.filter.trash ? "gallery.trash_empty" : this.list.isFiltered() ? "gallery.nothing" : "gallery.empty");
  }

  // ---- what happens elsewhere ----

  async #addNew(job) {
    if (!this.isRead || this.list.isFiltered()) return;
    const assets = await Promise.all((job.images || []).map((image) => get(`/assets/${image.asset_id}`).catch(() => null)));
    if (this.list.isFiltered()) return; // since then
    this.list.add(assets.filter((a) => a && !a.deleted_at && (a.project_id ?? "default") === store.project).reverse().map(imageOf));
    this.#show();
  }

  // One that comes back from the trash leaves it, and is shown again where it was.
  #updated(asset) {
    if (this.list.filter.trash && !asset.deleted_at) this.#forget([asset.id]);
    else if (!this.#changed(asset) && asset.kind === "image" && (asset.project_id ?? "default") === store.project && this.list.covers(asset)) this.searchAgainSoon();
  }

  #changed(asset) {
    if (!this.list.change(asset.id, asset)) return false;
    this.grid.redraw();
    this.#show();
    return true;
  }

  #forget(ids) {
    this.list.remove(ids);
    this.grid.choose([...this.grid.chosen].filter((id) => !ids.includes(id)));
    this.#show();
  }

  // ---- what is done with several ----

  #showBar() {
    const n = this.grid.chosen.size;
    const inTrash = Boolean(this.list.filter.trash);
    const button = (label, run, more = {}) => h("button", { class: "chip", onclick: run, ...more }, t(label));
    const picking = button("gallery.pick", () => {
      this.grid.picking = !this.grid.picking;
      if (!this.grid.picking) this.grid.choose([]);
      this.#showBar();
    }, { "aria-pressed": String(this.grid.picking) });
    const emptyTrash = inTrash ? button("gallery.empty_trash", () => this.#emptyTrash()) : null;
    if (!n) {
      replace(this.bar, picking, emptyTrash);
      return;
    }
    replace(this.bar, picking, h("span", {}, t("gallery.chosen", { n })),
      inTrash ? button("gallery.restore", () => this.#bulk("restore").then(() => this.search())) : [
        button("compare.show", () => this.#compare(), { disabled: n !== 2 }),
        button("gallery.star", () => this.#bulk("star")), button("gallery.unstar", () => this.#bulk("unstar")),
        button("gallery.add_tag", () => this.#tag()), button("gallery.to_board", () => this.#move()),
        store.elements.length ? button("gallery.to_element", () => this.#toElement()) : null,
        button("gallery.train", () => sendTo("training", { pictures: this.grid.chosenItems().map((i) => ({ ...pictureOfAsset(i), caption: i.prompt || "" })) }))],
      button(inTrash ? "gallery.delete_forever" : "gallery.delete", () => this.#delete(this.grid.chosenItems())),
      emptyTrash, button("gallery.choose_none", () => this.grid.choose([])));
  }

  // Shown at once; events bring what the server says.
  #expect(action, { tags = [], board_id = null }, ids) {
    const changes = { star: () => ({ starred: true }), unstar: () => ({ starred: false }), tag: (i) => ({ tags: [...new Set([...i.tags, ...tags])] }),
      move: () => ({ board_id }) };
    if (!changes[action]) return;
    for (const item of this.list.items.filter((i) => ids.includes(i.id))) this.list.change(item.id, changes[action](item));
    this.grid.redraw();
  }

  #bulk = (...values) => attempt(() => this.#sendBulk(...values));

  // Throws what the server refuses as a whole; what it refuses for some images is said.
  async #sendBulk(action, more = {}, ids = [...this.grid.chosen]) {
    this.#expect(action, more, ids);
    const answer = await post("/assets/bulk", { ids, action, ...more }).catch((error) => {
      this.#searchAgain(); // what was expected is undone; what was selected stays
      throw error;
    });
    if (answer.failed.length) toast(t("gallery.some_failed", { done: answer.done.length, failed: answer.failed.length }), { kind: "error", hint: answer.failed[0].message });
    if (answer.failed.length) this.#searchAgain();
    return answer;
  }

  #compare() {
    const [a, b] = this.grid.chosenItems();
    dialog(t("compare.show"), compare(a.url, b.url), { wide: true });
  }

  async #tag() {
    const input = h("input", { required: true });
    const ids = [...this.grid.chosen];
    const send = () => this.#sendBulk("tag", { tags: input.value.split(",").map((tag) => tag.trim()).filter(Boolean) }, ids);
    if (await ask(t("gallery.add_tag"), field(t("gallery.tags"), input, { hint: t("gallery.tags_hint") }), t("gallery.add_tag"), send)) await this.filter.refresh();
  }

  async #toElement() {
    const select = h("select", {}, store.elements.map((e) => h("option", { value: e.id }, `${e.name} (${e.trigger})`)));
    const items = this.grid.chosenItems();
    const send = () => sendEach(items, (item) => post(`/elements/${select.value}/images`, { asset_id: item.id }));
    const n = await ask(t("gallery.to_element"), field(t("gallery.element"), select), t("gallery.to_element"), send);
    if (n) toast(t("gallery.in_element", { n, name: store.elements.find((e) => e.id === select.value)?.name || "" }));
  }

  #move() {
    const ids = [...this.grid.chosen];
    return this.filter.chooseBoard((board) => this.#sendBulk("move", { board_id: board }, ids));
  }

  // Gone at once; "Undo" brings them back. From the trash they go for good, so that is asked first.
  async #delete(items) {
    const ids = items.map((item) => item.id);
    const forGood = Boolean(items[0]?.deleted_at);
    if (forGood) {
      const question = h("p", {}, t("gallery.delete_question", { n: ids.length }));
      const answer = await ask(t("gallery.delete_forever"), question, t("gallery.delete_forever"), () => this.#sendBulk("delete", {}, ids));
      if (answer) this.#forget(answer.done);
      return;
    }
    this.#forget(ids);
    const answer = await this.#bulk("trash", {}, ids);
    if (answer?.done.length)
      toast(t("gallery.deleted", { n: answer.done.length }), { action: { label: t("undo"), run: async () => {
        await this.#bulk("restore", {}, answer.done);
        await this.search();
      } } });
  }

  async #emptyTrash() {
    // A search or a filter may show a part of it only.
    const all = await attempt(() => get(`/assets?project=${store.project}&trash=1&limit=1`));
    const question = all && h("p", {}, t("gallery.delete_question", { n: all.total }));
    if (all && (await ask(t("gallery.empty_trash"), question, t("gallery.empty_trash"), () => remove(`/trash?project=${store.project}`)))) await this.search();
  }
}
