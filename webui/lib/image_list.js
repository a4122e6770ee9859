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
  }

  // Starts a search. Empty values of the filter are left out.
  async search(filter) {
    const number = ++this.number;
    this.filter = filter;
    this.reading = null;
    const page = await this.#page("");
    if (number !== this.number) return false;
    this.items = page.items.map(imageOf);
    this.next = page.next;
    this.total = page.total ?? this.items.length;
    return true;
  }

  // Reads until there are `count` items or nothing is left. `read` is called after every page.
  async need(count, read) {
    this.wanted = Math.max(this.reading ? this.wanted : 0, count);
    this.reading ??= this.#readPages(read).finally(() => (this.reading = null));
    return this.reading;
  }

  isFiltered = () => Object.entries(this.filter).some(([name, value]) => value && name !== "project" && name !== "kind");

  add(items) {
    const known = new Set(this.items.map((i) => i.id));
    const added = items.filter((i) => !known.has(i.id));
    this.items = [...added, ...this.items];
    this.total += added.length;
  }

  remove(ids) {
    const gone = new Set(ids);
    const before = this.items.length;
    this.items = this.items.filter((i) => !gone.has(i.id));
    this.total -= before - this.items.length;
  }

  change(asset) {
    const place = this.items.findIndex((i) => i.id === asset.id);
    if (place >= 0) this.items[place] = imageOf(asset);
    return place >= 0;
  }

  async #readPages(read) {
    const { number } = this;
    while (this.next && this.items.length < this.wanted) {
      const page = await this.#page(this.next);
      if (number !== this.number) return;
      for (const asset of page.items) this.items.push(imageOf(asset));
      this.next = page.next;
      if (!this.next) this.total = this.items.length;
      read();
    }
  }

  #page(cursor) {
    const query = new URLSearchParams(Object.entries({ ...this.filter, limit: PAGE, cursor }).filter(([, v]) => v !== "" && v !== null && v !== undefined));
    return get(`/assets?${query}`);
  }
}
