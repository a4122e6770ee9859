// Files in the models folder of the server that belong to no model: listed, ticked, deleted.
import { get, post } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { bytes, t } from "../lib/text.js";
import { attempt, dialog, toast } from "./messages.js";
import { ask } from "./sending.js";
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
  const list = tickList(items, () => show());
  let form = null;
  const show = () => {
    const ticked = list.ticked();
    form.ready = ticked.length > 0;
    chosen.textContent = t("orphans.chosen", { n: ticked.length, size: bytes(sum(ticked)) });
  };
  const done = await ask(t("models.orphans"), [h("p", { class: "quiet" }, t("orphans.intro", { folder: found.folder })), list.element], t("orphans.delete"),
    () => post("/models/orphans/delete", { paths: list.ticked().map(({ entry }) => entry.path) }), { more: chosen, medium: true, setUp: (made) => {
      form = made;
      show();
    } });
  if (done) toast(t("orphans.deleted", { n: done.deleted, size: bytes(done.bytes) }));
}
