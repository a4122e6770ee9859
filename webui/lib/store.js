// What the page knows of the server. It is read once and then kept up to date by the event stream, so every window shows the same.
import { get, patch } from "./api.js";
import { throttled } from "./dom.js";
import { readDraft, writeDraft } from "./drafts.js";
import { Reading } from "./reading.js";

const EVENTS = [
  "hello", "reset", "job.queued", "job.started", "job.updated", "job.completed", "job.failed", "job.cancelled", "progress",
  "preview", "image", "queue", "model.loading", "model.loaded", "model.failed", "model.unloaded", "install.progress",
  "install.completed", "install.error", "train.state", "train.metrics", "train.sample", "train.checkpoint", "asset.updated", "asset.deleted",
  "project.created", "project.updated", "project.deleted", "element.created", "element.updated", "element.deleted",
  "board.created", "board.updated", "board.deleted", "scene.created", "scene.updated", "scene.deleted", "shot.created", "shot.updated", "shot.deleted",
];
const SLOWEST_RETRY = 10_000; // ms
const LONGEST_GREETING = 3000; // ms: a proxy may hold the events back

class Store extends EventTarget {
  info = null;
  models = [];
  loras = [];
  jobs = new Map(); // by id: those that wait or run, and what happened while the page was open
  queue = { paused: false, running: 0, queued: 0 };
  connection = "connecting"; // connecting, online, offline
  loading = ""; // the model that is being loaded
  projects = [];
  elements = []; // of the project, and shared ones
  project = readDraft("project", { id: "default" }).id; // the one that is worked on
  #source = null;
  #lastId = "";
  #retry = 500;

  on(name, listener) {
    this.addEventListener(name, (event) => listener(event.detail));
  }
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  async start() {
    this.paths = (await get("/openapi.json")).paths;
    await get("/queue"); // asks for the key where one is needed; an event stream cannot
    await this.#greeting();
    await this.refresh();
  }

  // Events come first: a job that ends while the jobs are read is known to have ended. Without events the page works, too.
  #greeting() {
    return new Promise((done) => {
      const timer = setTimeout(() => {
        this.addEventListener("hello", () => this.#catchUp(), { once: true });
        done();
      }, LONGEST_GREETING);
      const greeted = () => {
        clearTimeout(timer);
        done();
      };
      this.addEventListener("hello", greeted, { once: true });
      this.on("connection", (state) => state === "offline" && greeted());
      this.#connect();
    });
  }

  async refresh() {
    await Promise.all([this.#models.read(), this.#readJobs(), this.#order.read(), this.readProjects()]);
  }

  #models = new Reading(() => Promise.all([get("/info"), get("/models"), get("/loras")]), ([info, models, loras]) => {
    this.info = info;
    this.models = models.items;
    this.loras = loras.items;
    this.#tell("info");
  });

  readModels = () => this.#models.read();

  // Every change of a job makes a new object. One that an event has changed meanwhile is newer than the answer.
  async #readJobs() {
    const before = new Map(this.jobs);
    const pages = await Promise.all([get("/jobs?state=queued&limit=200"), get("/jobs?state=running&limit=50")]);
    const read = new Map(pages.flatMap((page) => page.items).map((job) => [job.id, job]));
    const isSame = (id) => this.jobs.get(id) === before.get(id);
    const gone = [...before.values()].filter((job) => !isFinal(job) && !read.has(job.id));
    for (const [id, job] of read) if (isSame(id)) this.jobs.set(id, job);
    this.#tell("jobs");
    await Promise.all(gone.map((job) => this.#readGone(job)));
  }

  // A job that neither waits nor runs any more, although no event has said so.
  async #readGone(known) {
    const job = await get(`/jobs/${known.id}`).catch((error) => (error.status === 404 ? null : known));
    if (this.jobs.get(known.id) !== known || job === known) return; // an event came after all, or nothing is known
    if (job) this.jobs.set(job.id, job);
    else this.jobs.delete(known.id);
    this.#tell("jobs", known.id);
    if (job && isFinal(job)) this.#tell("ended", job);
  }

  #projects = new Reading(() => get("/projects"), ({ items }) => {
    this.projects = items;
    const isGone = !items.some((p) => p.id === this.project);
    if (isGone) this.project = "default";
    this.#tell("projects");
    if (isGone) this.#tell("project");
  });

  async readProjects() {
    await this.#projects.read();
    await this.readElements();
  }

  // Whether this server answers a request; builds differ in what they can do.
  can = (path) => `/api/v1${path}` in this.paths;

  #elements = new Reading(async () => ({ project: this.project, ...(await get(`/projects/${this.project}/elements?include_shared=1`)) }), ({ project, items }) => {
    if (project !== this.project) return; // another one was chosen meanwhile
    this.elements = items;
    this.#tell("elements");
  });

  async readElements() {
    if (this.can("/projects/{id}/elements")) await this.#elements.read();
  }

  // Sends a change of elements; they are read again afterwards.
  changeElements = (send) => this.#elements.store(send);

  setProject(id) {
    this.project = id;
    writeDraft("project", { id });
    this.#tell("project");
    this.readElements().catch(() => {});
  }

  // Waiting jobs in the order in which they will run. Shown at once; what the server refuses is undone.
  #order = new Reading(async () => [this.queue, await get("/queue")], ([before, { paused, order }]) => {
    if (this.queue === before) this.queue = { ...before, paused }; // otherwise an event was later
    this.order = order;
    this.#tell("jobs");
  });

  setOrder(ids) {
    this.order = ids;
    this.#tell("jobs");
    return this.#order.store(() => patch("/queue", { order: ids }));
  }

  // Waiting jobs in the order in which they will run.
  waiting() {
    const place = new Map((this.order || []).map((id, i) => [id, i]));
    return [...this.jobs.values()]
      .filter((job) => job.state === "queued")
      .sort((a, b) => (place.get(a.id) ?? 1e9) - (place.get(b.id) ?? 1e9) || (a.id < b.id ? -1 : 1));
  }
  running = () => [...this.jobs.values()].filter((job) => job.state === "running" || job.state === "cancelling");
  ended = () => [...this.jobs.values()].filter(isFinal).sort((a, b) => (a.id < b.id ? 1 : -1));

  // A job that this page has just submitted. Its first event may have come earlier; events have no request.
  add(job) {
    this.jobs.set(job.id, { ...job, ...this.jobs.get(job.id), request: job.request });
    this.#tell("jobs");
  }

  defaults(model) {
    const known = this.info?.defaults || {};
    return known[model] || Object.values(known)[0] || {};
  }

  #connect() {
    const query = this.#lastId ? `?last_event_id=${this.#lastId}` : "";
    const source = new EventSource(`/api/v1/events${query}`);
    this.#source = source;
    source.onopen = () => {
      this.#retry = 500;
      this.#setConnection("online");
    };
    source.onerror = () => {
      source.close();
      if (source !== this.#source) return;
      this.#setConnection("offline");
      setTimeout(async () => {
        await get("/queue").catch(() => {}); // asks for the key if the session has ended: an event stream cannot
        this.#connect();
      }, this.#retry);
      this.#retry = Math.min(2 * this.#retry, SLOWEST_RETRY);
    };
    for (const name of EVENTS)
      source.addEventListener(name, (event) => {
        if (event.lastEventId) this.#lastId = event.lastEventId;
        this.#take(name, JSON.parse(event.data));
      });
  }

  #setConnection(state) {
    if (this.connection === state) return;
    const wasOffline = this.connection === "offline";
    this.connection = state;
    this.#tell("connection", state);
    if (state === "online" && wasOffline) this.#catchUp();
  }

  // Events may have been missed.
  #catchUp() {
    this.#tell("missed");
    this.refresh().catch(() => {});
  }

  #take(name, data) {
    switch (name) {
      case "hello":
        this.#lastId ||= String(data.last_id); // what comes after it is replayed if the connection is lost
        break;
      case "reset":
        this.#catchUp();
        return;
      case "job.queued":
      case "job.started":
      case "job.updated":
        this.#change(data.id, data);
        if (!this.jobs.get(data.id)?.request) this.#readRequestsSoon();
        return;
      case "progress":
        this.#change(data.job_id, data, "progress");
        return;
      case "preview":
        this.#change(data.job_id, { preview: `${data.url}?step=${data.step}-${data.index}` }, "progress");
        return;
      case "image":
        this.#image(data);
        return;
      case "job.completed":
      case "job.failed":
      case "job.cancelled":
        this.#end(name.slice(4), data);
        return;
      case "queue":
        this.queue = { ...this.queue, ...data };
        this.#tell("queue");
        this.#readOrderSoon();
        return;
      case "model.loading":
        this.loading = data.model;
        this.#tell("info");
        return;
      case "model.loaded":
      case "model.unloaded":
        this.loading = "";
        this.#models.changed();
        for (const model of this.models) if (model.name === data.model) model.loaded = name === "model.loaded"; // several may be in memory
        this.#tell("info");
        return;
      case "model.failed":
        this.loading = "";
        this.#tell("info");
        this.#tell("failed", data);
        return;
      case "project.created":
      case "project.updated":
      case "project.deleted":
        this.#readProjectsSoon();
        return;
      case "element.created":
      case "element.updated":
      case "element.deleted":
        this.#readElementsSoon();
        return;
      case "install.completed":
        this.refresh().catch(() => {});
    }
    this.#tell(name, data); // those that only one tab follows
  }

  #change(id, values, event = "jobs") {
    const job = this.jobs.get(id);
    if (job && isFinal(job)) return;
    this.jobs.set(id, { ...job, ...values, request: values.request || job?.request, id });
    this.#tell(event, id);
  }

  #image(data) {
    const job = this.jobs.get(data.job_id);
    if (!job) return;
    const images = (job.images || []).filter((image) => image.index !== data.index);
    images.push(data);
    images.sort((a, b) => a.index - b.index);
    this.#change(data.job_id, { images });
  }

  async #end(state, data) {
    const job = await get(`/jobs/${data.job_id}`).catch(() => null); // with all its settings, before anything shows that it has ended
    if (job) this.jobs.set(job.id, job);
    else this.#change(data.job_id, { state, error: data.error || null });
    this.#tell("jobs", data.job_id);
    this.#tell("ended", this.jobs.get(data.job_id));
    if (["convert", "verify"].includes(job?.kind)) this.readModels().catch(() => {}); // there is a new one, or a file is damaged
    else if (this.loading && job?.kind !== "download") { // its model did not load: no event says so
      this.loading = "";
      this.#tell("info");
    }
    if (data.element_id) this.#readElementsSoon(); // an image of it was added
    this.#forgetOld();
  }

  // Events of the queue carry its length but not its order. Many can arrive within a second, so the order is read twice a second at most.
  #readOrderSoon = throttled(500, () => this.#readOrder());
  async #readOrder() {
    if (this.queue.queued > 1) await this.#order.read().catch(() => {});
  }

  // Events have no request: those of jobs that another window has sent are read, all at once.
  #readRequestsSoon = throttled(300, async () => {
    const pages = await Promise.all(["queued", "running"].map((state) => get(`/jobs?state=${state}&limit=200`).catch(() => ({ items: [] }))));
    for (const job of pages.flatMap((p) => p.items)) {
      const known = this.jobs.get(job.id);
      if (known && !known.request) this.jobs.set(job.id, { ...known, request: job.request });
    }
    this.#tell("jobs");
  });

  #readElementsSoon = throttled(300, () => this.readElements().catch(() => {}));
  #readProjectsSoon = throttled(300, () => this.readProjects().catch(() => {}));

  #forgetOld() {
    const kept = 50;
    for (const job of this.ended().slice(kept)) this.jobs.delete(job.id);
  }
}

export const isFinal = (job) => ["completed", "failed", "cancelled"].includes(job.state);
export const store = new Store();
