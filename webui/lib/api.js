// Calls of /api/v1. Every failure is an ApiError whose message can be shown.
import { t } from "./text.js";

export class ApiError extends Error {
  constructor(status, error = {}) {
    super(error.message || t("error.status", { status }));
    this.status = status;
    this.code = error.code || "";
    this.hint = error.hint || "";
    this.fields = error.fields || [];
  }
}

let signIn = null; // asks for the key; set by the page
export const onSignIn = (ask) => (signIn = ask);

async function send(method, path, body) {
  const options = { method, headers: { "X-Flux2": "1" }, credentials: "same-origin" };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  try {
    return await fetch(`/api/v1${path}`, options);
  } catch {
    throw new ApiError(0, { message: t("error.offline"), code: "offline" });
  }
}

// The JSON of an answer; throws if the answer is an error.
async function contentOf(answer) {
  const text = await answer.text();
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    // an answer of a proxy between us
  }
  if (!answer.ok) throw new ApiError(answer.status, json?.error);
  return json;
}

// Asks for the key first, where one is needed.
async function answerTo(method, path, body) {
  const answer = await send(method, path, body);
  if (answer.status !== 401 || !signIn) return answer;
  await signIn();
  return send(method, path, body);
}

export const call = async (method, path, body) => contentOf(await answerTo(method, path, body));

// For answers that are files.
export async function postForBlob(path, body) {
  const answer = await answerTo("POST", path, body);
  return answer.ok ? answer.blob() : contentOf(answer);
}

// Sends a key; the answer sets the cookie of the session. A wrong key is an error here and not a reason to ask for a key: the
// dialog that asks is waiting for this call.
export const sendKey = async (key) => contentOf(await send("POST", "/session", { key }));

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

// Stores an image and returns its asset.
export async function upload(file, name = "image.png") {
  const form = new FormData();
  form.append("file", file, file.name || name);
  return call("POST", "/uploads", form);
}
