// Answers can overtake each other, and what the person does here can overtake an answer. These helpers keep old answers from being shown.

// Something that is read from the server and also changed here. `ask()` requests it, `take(answer)` shows it. An answer is left out if
// a later one was shown already, or if it was requested before a change that was made here; then it is read again.
export class Reading {
  #asked = 0; // number of the last request
  #shown = 0; // number of the request whose answer is shown
  #stale = 0; // answers to requests up to this one are older than a change
  #stores = 0; // changes that the server does not have yet
  #latest = null; // the last read
  #inTurn = inTurn();

  constructor(ask, take) {
    Object.assign(this, { ask, take });
  }

  read() {
    return (this.#latest = this.#answer(++this.#asked));
  }

  // What is shown was changed here: answers that are on their way are older.
  changed() {
    this.#stale = this.#asked;
  }

  // Stores a change that is shown already. Changes are sent one after the other. Nothing is shown until the server has all of them;
  // then its state is read, so that what it refused is undone. Returns what `send()` returns.
  async store(send) {
    ++this.#stores;
    try {
      return await this.#inTurn(send);
    } finally {
      this.changed();
      if (--this.#stores === 0) this.read().catch(() => {}); // offline: read again when the connection is back
    }
  }

  async #answer(number) {
    const answer = await this.ask();
    if (this.#stores || number < this.#shown) return;
    if (number <= this.#stale) return number === this.#asked ? this.read() : this.#latest;
    this.#shown = number;
    this.take(answer);
  }
}

// Runs calls one after the other: for changes of one thing, so that the last one wins on the server, and its answer comes last.
export function inTurn() {
  let last = Promise.resolve();
  return (call) => {
    const result = last.then(call);
    last = result.catch(() => {}); // the caller sees the failure
    return result;
  };
}
