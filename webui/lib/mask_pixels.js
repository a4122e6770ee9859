// Masks as arrays with one byte per pixel: 255 is regenerated, 0 is kept. The functions that change a mask compute what the server
// computes (src/image/mask.cpp), so that the page can show it.

// The mask that a canvas holds in its alpha channel.
export function maskOf(canvas) {
  const { data } = canvas.getContext("2d", { willReadFrequently: true }).getImageData(0, 0, canvas.width, canvas.height);
  const mask = new Uint8Array(data.length / 4);
  for (let i = 0; i < mask.length; ++i) mask[i] = data[4 * i + 3] > 127 ? 255 : 0;
  return mask;
}

// The mask of an image file: 255 where it is light.
export async function maskOfPicture(blob) {
  const image = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  return Uint8Array.from({ length: data.length / 4 }, (_, i) => (data[4 * i] > 127 ? 255 : 0));
}

// Writes a mask into the alpha channel of a canvas, in one colour.
export function paintMask(canvas, mask, [red, green, blue]) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer); // little-endian: alpha is the highest byte
  const colour = (blue << 16) | (green << 8) | red;
  for (let i = 0; i < mask.length; ++i) if (mask[i]) pixels[i] = (colour | (mask[i] << 24)) >>> 0;
  context.putImageData(image, 0, 0);
}

// Lengths of runs, kept and regenerated in turn. A painted mask of 16 million pixels takes some kilobytes.
export function runsOf(mask) {
  const runs = [];
  let value = 0;
  for (let i = 0, start = 0; i <= mask.length; ++i)
    if (i === mask.length || mask[i] !== value) {
      runs.push(i - start);
      start = i;
      value = mask[i];
    }
  return Uint32Array.from(runs);
}

export function maskOfRuns(runs, length) {
  const mask = new Uint8Array(length);
  let at = 0;
  runs.forEach((run, i) => {
    if (i % 2) mask.fill(255, at, at + run);
    at += run;
  });
  return mask;
}

// Each pixel becomes the largest value within `radius`.
export function grown(mask, width, height, radius) {
  if (radius <= 0) return mask;
  const out = mask.slice();
  const spans = []; // [row, first, last] of what is regenerated
  for (let y = 0; y < height; ++y)
    for (let x = 0, row = y * width; x < width; ++x) {
      if (!mask[row + x]) continue;
      const first = x;
      while (x + 1 < width && mask[row + x + 1]) ++x;
      spans.push([y, first, x]);
    }
  for (let dy = -radius; dy <= radius; ++dy) {
    const reach = Math.floor(Math.sqrt(radius * radius - dy * dy));
    for (const [y, first, last] of spans) {
      const row = (y + dy) * width;
      if (y + dy >= 0 && y + dy < height) out.fill(255, row + Math.max(0, first - reach), row + Math.min(width, last + reach + 1));
    }
  }
  return out;
}

// The mean over `radius` neighbours to either side; `stride` is the distance of neighbours, `step` that of lines.
function averaged(mask, { lines, step, length, stride }, radius) {
  if (radius <= 0) return mask;
  const out = new Uint8Array(mask.length);
  const count = 2 * radius + 1;
  for (let line = 0; line < lines; ++line) {
    const at = (i) => mask[line * step + Math.min(Math.max(i, 0), length - 1) * stride];
    let sum = 0;
    for (let i = -radius; i <= radius; ++i) sum += at(i);
    for (let i = 0; i < length; ++i) {
      out[line * step + i * stride] = Math.floor((sum + radius) / count);
      sum += at(i + radius + 1) - at(i - radius);
    }
  }
  return out;
}

// Edges become ramps that reach `radius` to either side.
export function feathered(mask, width, height, radius) {
  const across = { lines: height, step: width, length: width, stride: 1 };
  const down = { lines: width, step: 1, length: height, stride: width };
  for (const part of [Math.floor(radius / 2), radius - Math.floor(radius / 2)])
    mask = averaged(averaged(mask, across, part), down, part);
  return mask;
}

// Pixels whose colour differs from that at (x, y) by at most `tolerance` in every channel: those that are connected with it, or all.
export function similarPixels({ data, width, height }, x, y, { tolerance, contiguous }) {
  const start = y * width + x;
  const [red, green, blue] = data.subarray(4 * start, 4 * start + 3);
  const isSimilar = (i) => Math.abs(data[4 * i] - red) <= tolerance && Math.abs(data[4 * i + 1] - green) <= tolerance &&
    Math.abs(data[4 * i + 2] - blue) <= tolerance;
  const mask = new Uint8Array(width * height);
  if (!contiguous) {
    for (let i = 0; i < mask.length; ++i) if (isSimilar(i)) mask[i] = 255;
    return mask;
  }
  const open = [start];
  mask[start] = 255;
  const visit = (i) => {
    if (mask[i] || !isSimilar(i)) return;
    mask[i] = 255;
    open.push(i);
  };
  while (open.length) {
    const i = open.pop(), column = i % width;
    if (column > 0) visit(i - 1);
    if (column < width - 1) visit(i + 1);
    if (i >= width) visit(i - width);
    if (i < mask.length - width) visit(i + width);
  }
  return mask;
}
