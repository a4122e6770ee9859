// Builds elements: h("button", { class: "plain", onclick: act }, "Cancel"). Attributes that are false, null or undefined are left
// out. Children may be nodes, texts, arrays of them, or null.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in PROPERTIES) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// These are set as properties: their attributes give the initial value only.
const PROPERTIES = { value: true, checked: true, indeterminate: true };

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return element;
}

// Draws children anew. The focus stays where it was: on the element with the same data-key, or beside it if that cannot have it.
export function redraw(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  replace(element, ...children);
  if (!key) return element;
  const again = element.querySelector(`[data-key="${CSS.escape(key)}"]`);
  again?.focus();
  if (again?.disabled) again.parentElement.querySelector("button:not(:disabled)")?.focus();
  return element;
}

let lastId = 0;
export const newId = (prefix) => `${prefix}-${++lastId}`;

// A labelled control; `hint` is read out with it.
export function field(label, control, { hint = "", wide = false } = {}) {
  control.id ||= newId("field");
  const note = hint ? h("small", { id: `${control.id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: wide ? "field wide" : "field" }, h("label", { for: control.id }, label), control, note);
}

export function debounced(delay, call) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), delay);
  };
}

// Calls at most once per `delay`, at its end: unlike debounced(), also while calls never pause.
export function throttled(delay, call) {
  let timer = 0;
  return () => {
    timer ||= setTimeout(() => {
      timer = 0;
      call();
    }, delay);
  };
}

// Whether the keyboard is being used to write.
export const isTyping = (event) => event.target.closest?.("input, textarea, select, [contenteditable]") !== null;
