// What was typed and not sent yet, and what the person prefers. Kept by the browser, so a reload loses nothing.
const PREFIX = "flux2.";

export function readDraft(name, otherwise) {
  try {
    return { ...otherwise, ...JSON.parse(localStorage.getItem(PREFIX + name) || "{}") };
  } catch {
    return { ...otherwise };
  }
}

export function writeDraft(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // storage is full or forbidden: the page works without it
  }
}
