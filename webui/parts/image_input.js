// Ways to get an image into the page: choose, drop, paste. Calls back with an uploaded asset.
import { upload } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { t } from "../lib/text.js";
import { errorText, toast } from "./messages.js";

const pictureOf = (asset) => ({ asset: asset.image, url: asset.url, thumb: asset.thumb_url, width: asset.width, height: asset.height });

export async function uploadPictures(files, take) {
  for (const file of files) {
    if (file.type && !file.type.startsWith("image/")) { // a browser does not know every type: the server looks at the file
      toast(t("input.no_image", { name: file.name }), { kind: "error" });
      continue;
    }
    try {
      take(pictureOf(await upload(file)));
    } catch (error) {
      toast(`${file.name}: ${errorText(error)}`, { kind: "error" }); // one of several, perhaps
    }
  }
}

// Says that a list of images takes no more.
export const sayFull = (most) => toast(t("input.full", { most }), { kind: "error" });

// A button that opens the file chooser and an area that takes dropped files.
export function imageInput(take, { several = false } = {}) {
  const chooser = h("input", { type: "file", accept: "image/*", multiple: several, class: "unseen", "aria-label": t("input.choose"),
    onchange: () => {
      uploadPictures([...chooser.files], take); // a copy: the list empties with the value
      chooser.value = "";
    } });
  const area = h("label", { class: "drop" }, icon("add"), h("span", {}, t(several ? "input.several" : "input.one")), chooser);
  dropTarget(area, take);
  return area;
}

export function dropTarget(element, take) {
  element.addEventListener("dragover", (event) => {
    event.preventDefault();
    element.classList.add("over");
  });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation(); // an area within another one
    element.classList.remove("over");
    uploadPictures([...event.dataTransfer.files], take);
  });
}

// Images that are pasted while `isShown()`.
export function takePasted(isShown, take) {
  document.addEventListener("paste", (event) => {
    if (!isShown()) return;
    const files = [...(event.clipboardData?.files || [])].filter((f) => f.type.startsWith("image/"));
    if (!files.length) return;
    event.preventDefault();
    uploadPictures(files, take);
  });
}
