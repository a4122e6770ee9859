// Files in the models folder of the server that belong to no model: listed, ticked, deleted.
import { get, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { bytes, t } from "../lib/text.js";
import { attempt, dialog, toast } from "./messages.js";
import { tickList } from "./tick_list.js";

const sum = (items) => items.reduce((total, { entry }) => total + entry.bytes, 0);

export async function showOrphans() {
  const found = await attempt(() => get("/models/orphans"));
  if (!found) return;
  const nameOf = (path) => (path.startsWith(`${found.folder}/`) ? path.slice(found.folder.length + 1) : path);
  const items = found.deletable.map((entry) => ({ entry, text: nameOf(entry.path) + (entry.folder ? "/" : ""), checked: false,
    detail: [t(entry.files === 1 ? "orphans.file" : "install.files", { n: entry.files }), bytes(entry.bytes), entry.partial ? t("orphans.partial") : ""].filter(Boolean).join(" · ") }));
  if (!items.length) {
    await dialog(t("models.orphans"), h("p", {}, t("orphans.none")));
    return;
  }
  const chosen = h("p", { class: "quiet", role: "status" });
  const button = h("button", { class: "danger", onclick: () => button.closest("dialog").close("delete") }, icon("trash"), t("orphans.delete"));
  const list = tickList(items, () => show());
  const show = () => {
    const ticked = list.ticked();
    button.disabled = !ticked.length;
    chosen.textContent = t("orphans.chosen", { n: ticked.length, size: bytes(sum(ticked)) });
  };
  show();
  const content = h("div", { class: "form" }, h("p", { class: "quiet" }, t("orphans.intro", { folder: found.folder })), list.element,
    h("div", { class: "actions end" }, chosen, h("button", { onclick: () => button.closest("dialog").close("") }, t("cancel")), button));
  if ((await dialog(t("models.orphans"), content, { medium: true })) !== "delete") return;
  const paths = list.ticked().map(({ entry }) => entry.path);
  const done = await attempt(() => post("/models/orphans/delete", { paths }));
  if (done) toast(t("orphans.deleted", { n: done.deleted, size: bytes(done.bytes) }));
}
