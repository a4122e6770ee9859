// Our icons: strokes on a grid of 24.
const PATHS = {
  generate: "M12 3v4M12 17v4M3 12h4M17 12h4M6 6l2.5 2.5M15.5 15.5 18 18M18 6l-2.5 2.5M8.5 15.5 6 18",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  inpaint: "M14 4l6 6-7 7H7v-6zM4 20h16",
  gallery: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  elements: "M12 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 21c0-4.5 3.5-7 8-7s8 2.5 8 7",
  shots: "M4 9h16v11H4zM4 9V5h16v4M8 5 6 9M13 5l-2 4M18 5l-2 4",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  training: "M4 19h16M5 15l4-5 4 3 6-8",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  queue: "M4 6h16M4 12h16M4 18h10",
  close: "M6 6l12 12M18 6L6 18",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  dice: "M5 5h14v14H5zM9 9h.01M15 15h.01M15 9h.01M9 15h.01",
  swap: "M7 4v16M4 7l3-3 3 3M17 20V4M14 17l3 3 3-3",
  retry: "M20 11a8 8 0 1 0-2.3 6M20 4v7h-7",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  undo: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  redo: "M15 7l5 5-5 5M20 12H10a6 6 0 0 0-6 6",
  brush: "M14 4l6 6-8 8-6-6zM6 12l-2 8 8-2",
  eraser: "M8 20h12M5 15l9-9 6 6-7 7H9z",
  rectangle: "M4 6h16v12H4z",
  lasso: "M12 4c5 0 8 2.5 8 5.5S17 15 12 15 4 12.5 4 9.5 7 4 12 4zM8 15c-1 2 0 4 2 5",
  wand: "M5 19 15 9M14 3v4M12 5h4M19 8v4M17 10h4M20 3h.01",
  point: "M12 3v5M12 16v5M3 12h5M16 12h5M12 11h.01",
  colour: "M12 3a9 9 0 1 0 0 18c2 0 2-1.5 1.5-2.5s0-2.5 1.5-2.5h2a4 4 0 0 0 4-4c0-5-4-9-9-9zM8 10h.01M12 7h.01M16 10h.01M8 14h.01",
  zoom_in: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5 20 20M10.5 8v5M8 10.5h5",
  zoom_out: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5 20 20M8 10.5h5",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  star: "M12 4l2.4 5.2 5.6.6-4.2 3.8 1.2 5.6-5-2.9-5 2.9 1.2-5.6L4 9.8l5.6-.6z",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18h.01",
  add: "M12 5v14M5 12h14",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
