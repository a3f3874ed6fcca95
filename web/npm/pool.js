// The connections to one server: each takes one request at a time, and is kept for the next.

import { ConnectionError } from './errors.js';
import { within } from './limits.js';

export class Pool {
  #open;
  #limits;
  #idle = [];
  #count = 0;
  #waiting = [];
  #closed = false;

  /** `open` opens a connection. */
  constructor(open, limits) {
    this.#open = open;
    this.#limits = limits;
  }

  /** Hands out a connection that may be used; the caller returns it with `release`. */
  async acquire() {
    if (this.#closed) throw new ConnectionError('this fetch was closed');
    for (let held; (held = this.#idle.pop()); ) {
      clearTimeout(held.timer);
      if (held.connection.isUsable()) return held.connection;
      this.#drop(held.connection);
    }
    if (this.#count >= this.#limits.connections) {
      const handed = await this.#wait();
      if (handed?.isUsable()) return handed;
      handed?.close();
    } else {
      this.#count += 1;
    }
    try {
      return await this.#open();
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  /** Takes a connection back, for the next request if it can be used again. */
  release(connection) {
    if (this.#closed || !connection.isUsable()) {
      this.#drop(connection);
      return;
    }
    const next = this.#waiting.shift();
    if (next) {
      next(connection);
      return;
    }
    const held = { connection };
    held.timer = setTimeout(() => {
      this.#idle = this.#idle.filter((other) => other !== held);
      this.#drop(connection);
    }, this.#limits.idleMs);
    // An idle connection does not keep a Node process alive.
    held.timer.unref?.();
    this.#idle.push(held);
  }

  close() {
    this.#closed = true;
    for (const { connection, timer } of this.#idle.splice(0)) {
      clearTimeout(timer);
      this.#drop(connection);
    }
  }

  #drop(connection) {
    connection.close();
    this.#leave();
  }

  /** Gives the place of a connection to the next request that waits. */
  #leave() {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#count -= 1;
  }

  /** Waits for a place; resolves to the connection of the request before, if there is one. */
  async #wait() {
    const { waiting, connections, queueMs } = this.#limits;
    if (this.#waiting.length >= waiting) {
      throw new ConnectionError(`queue is full: ${connections} requests run and ${waiting} wait`);
    }
    let turn;
    const called = new Promise((resolve) => { turn = resolve; });
    this.#waiting.push(turn);
    return within(queueMs, called, () => {
      this.#waiting = this.#waiting.filter((other) => other !== turn);
      return new ConnectionError(`no connection became free within ${queueMs} ms: all ${connections} are in use`);
    });
  }
}
