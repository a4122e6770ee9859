// Templates of prompts. Those of the server come with /info; the person's own ones are kept by the browser.
import { readDraft, writeDraft } from "./drafts.js";
import { store } from "./store.js";

const PLACE = "{prompt}";

export const ownTemplates = () => readDraft("templates", { items: [] }).items;
const keep = (items) => writeDraft("templates", { items });

// A template of the same name is replaced.
export function addTemplates(items) {
  const names = new Set(items.map((i) => i.name));
  keep([...ownTemplates().filter((i) => !names.has(i.name)), ...items].sort((a, b) => a.name.localeCompare(b.name)));
}
export const removeTemplate = (name) => keep(ownTemplates().filter((i) => i.name !== name));

// Own ones first. `isOwn` says that the page applies it; the server applies its own by name.
export function allTemplates() {
  const own = ownTemplates().map((item) => ({ ...item, isOwn: true }));
  const names = new Set(own.map((i) => i.name));
  const served = Object.entries(store.info.styles || {}).map(([name, prompt]) => ({ name, prompt, negative: "", isOwn: false }));
  return [...own, ...served.filter((i) => !names.has(i.name))];
}

export const applyTemplate = (template, prompt) =>
  template.prompt.includes(PLACE) ? template.prompt.replace(PLACE, () => prompt) : `${prompt}, ${template.prompt}`;

// ---- files ----

// Rows of cells; cells may be quoted and then hold commas, line ends and doubled quotes.
function parseCsv(text) {
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1).push(quoted !== undefined ? quoted.replaceAll('""', '"') : plain);
    if (end === "") break;
    if (end !== ",") rows.push([]);
  }
  return rows.filter((row) => row.some((cell) => cell));
}

// From CSV with the columns name, prompt (or positive_prompt) and negative_prompt, or from JSON with a list of such objects.
export function readTemplates(text) {
  let records;
  if (/^\s*[[{]/.test(text)) records = [JSON.parse(text)].flat();
  else {
    const [head = [], ...rows] = parseCsv(text);
    records = rows.map((row) => Object.fromEntries(head.map((name, i) => [name.trim(), row[i] ?? ""])));
  }
  return records.map((r) => ({ name: r.name, prompt: r.prompt ?? r.positive_prompt, negative: r.negative_prompt ?? "" }))
    .filter((r) => [r.name, r.prompt, r.negative].every((v) => typeof v === "string") && r.name.trim() && r.prompt.trim());
}

const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
export const writeTemplates = (items) =>
  ["name,prompt,negative_prompt", ...items.map((i) => [i.name, i.prompt, i.negative].map(quoted).join(","))].join("\n") + "\n";
