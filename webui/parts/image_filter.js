// What the gallery shows: words, favourites, board, tag, model, date, order, trash.
import { get, post } from "../lib/api.js";
import { debounced, field, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { Reading } from "../lib/reading.js";
import { store } from "../lib/store.js";
import { t } from "../lib/text.js";
import { attempt } from "./messages.js";
import { ask } from "./sending.js";

export class ImageFilter {
  constructor(changed) {
    this.changed = changed;
    this.boards = [];
    this.reading = new Reading(() => Promise.all([attempt(() => get(`/projects/${store.project}/boards`)), attempt(() => get(`/tags?project=${store.project}`))]),
      (found) => this.#show(found));
    const soon = debounced(120, changed);
    this.search = h("input", { type: "search", placeholder: t("gallery.search"), "aria-label": t("gallery.search"), oninput: soon });
    this.starred = this.#toggle("gallery.starred", "star");
    this.trash = this.#toggle("gallery.trash", "trash");
    this.board = this.#choice();
    this.tag = this.#choice();
    this.model = this.#choice();
    this.sort = this.#choice(["newest", "oldest"].map((v) => h("option", { value: v }, t(`gallery.${v}`))));
    this.from = h("input", { type: "date", onchange: changed });
    this.to = h("input", { type: "date", onchange: changed });
    this.element = h("div", { class: "filter" }, h("div", { class: "toolbar" }, this.search, this.starred, this.trash),
      h("details", {}, h("summary", {}, t("gallery.filters")), h("div", { class: "row" }, field(t("gallery.board"), this.board), field(t("gallery.tag"), this.tag),
        field(t("field.model"), this.model), field(t("gallery.from"), this.from), field(t("gallery.to"), this.to), field(t("gallery.sort"), this.sort))));
  }

  // Reads boards and tags again.
  refresh = () => this.reading.read();

  #show([boards, tags]) {
    this.boards = boards?.items || [];
    const options = (select, first, items) => {
      const { value } = select;
      replace(select, h("option", { value: "" }, first), items.map(([id, label]) => h("option", { value: id }, label)));
      select.value = items.some(([id]) => id === value) ? value : "";
    };
    options(this.board, t("gallery.all"), this.boards.map((b) => [b.id, `${b.name} (${b.images})`]));
    options(this.tag, t("gallery.all"), (tags?.items || []).map((i) => [i.tag, `${i.tag} (${i.count})`]));
    options(this.model, t("gallery.all"), store.models.filter((m) => m.type === "main").map((m) => [m.name, m.name]));
  }

  values() {
    const day = (input, later) => (input.value ? new Date(new Date(`${input.value}T00:00`).getTime() + later).toISOString() : "");
    return { kind: "image", project: store.project, q: this.search.value.trim(), board: this.board.value, tag: this.tag.value, model: this.model.value,
      starred: this.isOn(this.starred) ? 1 : "", trash: this.isOn(this.trash) ? 1 : "", sort: this.sort.value === "oldest" ? "oldest" : "",
      from: day(this.from, 0), to: day(this.to, 86_400_000) };
  }

  isOn = (toggle) => toggle.getAttribute("aria-pressed") === "true";

  // Asks for a board to put images into; `move(id)` sends it, with null for none.
  async chooseBoard(move) {
    const select = h("select", {}, h("option", { value: "" }, t("board.none")), this.boards.map((b) => h("option", { value: b.id }, b.name)));
    const name = h("input");
    let made = null; // a new board: the next try uses it
    await ask(t("board.choose"), [field(t("gallery.board"), select), field(t("board.new"), name)], t("board.move"), async () => {
      const wanted = name.value.trim();
      if (wanted && made?.name !== wanted) made = await post(`/projects/${store.project}/boards`, { name: wanted });
      await move(wanted ? made.id : select.value || null);
    });
    await this.refresh();
  }

  #choice(options = []) {
    return h("select", { onchange: () => this.changed() }, options);
  }

  #toggle(label, glyph) {
    const button = h("button", { class: "plain", "aria-pressed": "false", "aria-label": t(label), title: t(label), onclick: () => {
      button.setAttribute("aria-pressed", String(!this.isOn(button)));
      this.changed();
    } }, icon(glyph));
    return button;
  }
}
