// The images that a search finds, read page by page.
import { get } from "./api.js";

const PAGE = 200; // the most that the server gives at a time

// As the page uses them, whatever else the server says.
export const imageOf = (asset) => ({ ...asset, thumb: asset.thumb_url });

export class ImageList {
  constructor() {
    this.items = [];
    this.total = 0;
    this.filter = {};
    this.next = null; // cursor of the next page; null: everything was read
    this.number = 0; // of the search, so that answers to an older one are ignored
    this.reads = 0; // pages that are on their way
    this.changes = []; // what was changed meanwhile: answers may be older than that
  }

  // Starts a search. Empty values of the filter are left out.
  async search(filter) {
    const number = ++this.number;
    this.filter = filter;
    this.reading = null;
    return this.#read("", (page) => {
      if (number !== this.number) return false;
      this.items = page.items.map(imageOf);
      this.next = page.next;
      this.total = page.total ?? this.items.length;
      return true;
    });
  }

  // Reads until there are `count` items or nothing is left. `read` is called after every page.
  async need(count, read) {
    this.wanted = Math.max(this.reading ? this.wanted : 0, count);
    this.reading ??= this.#readPages(read).finally(() => (this.reading = null));
    return this.reading;
  }

  // Whether the list would have the image by now, if it belongs to it.
  covers = (asset) => !this.next || this.items.some((i) => i.id < asset.id);

  isFiltered = () => Object.entries(this.filter).some(([name, value]) => value && name !== "project" && name !== "kind");

  // The three kinds of changes. They are made again to pages that were requested before.
  add = (items) => this.#change(() => this.#add(items));
  remove = (ids) => this.#change(() => this.#remove(ids));
  change = (id, values) => this.#change(() => this.#assign(id, values));

  #change(make) {
    if (this.reads) this.changes.push(make);
    return make();
  }

  #add(items) {
    const known = new Set(this.items.map((i) => i.id));
    const added = items.filter((i) => !known.has(i.id));
    this.items = [...added, ...this.items];
    this.total += added.length;
  }

  #remove(ids) {
    const gone = new Set(ids);
    const before = this.items.length;
    this.items = this.items.filter((i) => !gone.has(i.id));
    this.total -= before - this.items.length;
  }

  #assign(id, values) {
    const place = this.items.findIndex((i) => i.id === id);
    if (place >= 0) this.items[place] = imageOf({ ...this.items[place], ...values });
    return place >= 0;
  }

  async #readPages(read) {
    const { number } = this;
    while (this.next && this.items.length < this.wanted) {
      const isTaken = await this.#read(this.next, (page) => {
        if (number !== this.number) return false;
        for (const asset of page.items) this.items.push(imageOf(asset));
        this.next = page.next;
        return true;
      });
      if (!isTaken) return;
      if (!this.next) this.total = this.items.length;
      read();
    }
  }

  // Reads a page. If `take(page)` uses it, changes that were made since it was requested are made again.
  async #read(cursor, take) {
    const query = new URLSearchParams(Object.entries({ ...this.filter, limit: PAGE, cursor }).filter(([, v]) => v !== "" && v !== null && v !== undefined));
    const made = this.changes.length;
    ++this.reads;
    try {
      const isTaken = take(await get(`/assets?${query}`));
      if (isTaken) for (const make of this.changes.slice(made)) make();
      return isTaken;
    } finally {
      if (--this.reads === 0) this.changes = [];
    }
  }
}
