// All texts come from lang/*.json. English is complete; where another language lacks a text, English is used.
let texts = {};
let fallback = {};

export const LANGUAGES = { en: "English", de: "Deutsch" };

const read = async (language) => (await fetch(new URL(`../lang/${language}.json`, import.meta.url))).json();

export async function loadTexts(language) {
  fallback = await read("en");
  texts = language === "en" ? fallback : await read(language).catch(() => fallback);
  document.documentElement.lang = language;
}

// Whether there is a text: what a server says may be newer than the page.
export const has = (key) => key in fallback;

// t("state.position", { n: 2 }) → "Waiting, place 2"
export function t(key, values = {}) {
  const text = texts[key] ?? fallback[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

export function seconds(value) {
  if (value < 0.95) return t("time.seconds", { n: value.toFixed(1) });
  if (value < 90) return t("time.seconds", { n: Math.round(value) });
  if (value < 5400) return t("time.minutes", { n: Math.round(value / 60) });
  return t("time.hours", { n: (value / 3600).toFixed(1) });
}

const UNITS = [["GiB", 2 ** 30, 1], ["MiB", 2 ** 20, 0], ["KiB", 2 ** 10, 0]];

export function bytes(value) {
  const [unit, size, digits] = UNITS.find(([, s]) => value >= s) || UNITS.at(-1);
  return `${value && value < 2 ** 10 ? 1 : (value / size).toFixed(digits)} ${unit}`;
}
