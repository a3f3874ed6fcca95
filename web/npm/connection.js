// One attested connection: moves bytes between the carrier and the TLS session in the WebAssembly, and
// makes answers `Response` objects.

import { ConnectionError, toError } from './errors.js';
import { within } from './limits.js';
import { openSocket } from './socket.js';
import { openTunnel } from './websocket.js';

/** Statuses whose answers have no body. */
const BODILESS = [204, 205, 304];

/** Fields that the connection sets itself; `fetch` in a page passes over them too. */
const OWN_FIELDS = [
  'connection', 'content-length', 'host', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade',
];

/** Opens a connection to `server`; resolves only if its evidence is accepted. */
export async function openConnection(verifier, server, options, limits) {
  const { name, authority, target, host, port, label } = server;
  // An option that cannot be used is refused before anything is dialled.
  const session = verifier.connection(name, authority, options.binding, options.sessionVersion);
  const dialling = options.tunnel ? openTunnel(options.tunnel, target, limits) : openSocket(host, port);
  const late = () => {
    dialling.then((carrier) => carrier.close(), () => {});
    return new ConnectionError(`${label} cannot be reached: no connection within ${limits.dialMs} ms`);
  };
  let carrier;
  try {
    carrier = await within(limits.dialMs, dialling, late);
  } catch (error) {
    if (!(error instanceof ConnectionError) || error.message.startsWith(label)) throw error;
    throw new ConnectionError(`${label} cannot be reached: ${error.message}`, { cause: error });
  }
  const connection = new Connection(session, carrier, server, limits);
  await connection.open();
  return connection;
}

export class Connection {
  #session;
  #carrier;
  #server;
  #limits;
  #closed = false;

  constructor(session, carrier, server, limits) {
    this.#session = session;
    this.#carrier = carrier;
    this.#server = server;
    this.#limits = limits;
    this.#sendAll();
    this.#receiveAll();
  }

  async #sendAll() {
    try {
      for (let bytes; (bytes = await this.#session.pull()); ) await this.#carrier.send(bytes);
      if (!this.#closed) this.#carrier.endSending();
    } catch {
      this.close();
    }
  }

  async #receiveAll() {
    try {
      for await (const bytes of this.#carrier) await this.#session.push(bytes);
      this.#session.end();
    } catch {
      this.close();
    }
  }

  /** Runs handshake and appraisal. */
  async open() {
    const { label } = this.#server;
    const late = () => new ConnectionError(
      `${label} could not be judged: no accepted evidence within ${this.#limits.channelMs} ms`);
    try {
      this.verification = JSON.parse(await within(this.#limits.channelMs, this.#session.open(), late));
      this.openedAt = Date.now();
    } catch (thrown) {
      this.close();
      throw toError(label, thrown);
    }
  }

  /** Whether another request may be sent: it is open, and its evidence neither old nor expired. */
  isUsable() {
    const now = Date.now();
    return !this.#closed && this.#session.isUsable() && now - this.openedAt < this.#limits.evidenceAgeMs
      && now / 1000 < this.verification.not_after;
  }

  /** Sends a request. `onDone` is called when its answer has been read to the end, or has failed. */
  async send(request, body, onDone) {
    const { label } = this.#server;
    const url = new URL(request.url);
    const fields = [...request.headers].filter(([name]) => !OWN_FIELDS.includes(name)).flat();
    const { signal } = request;
    const abort = () => this.close();
    signal?.addEventListener('abort', abort, { once: true });
    let isDone = false;
    const done = () => {
      if (isDone) return;
      isDone = true;
      signal?.removeEventListener('abort', abort);
      onDone();
    };
    const fail = (thrown) => {
      this.close();
      done();
      return signal?.aborted ? signal.reason : toError(label, thrown);
    };
    const limit = this.#limits.responseStartMs;
    const late = () => new ConnectionError(`${label}: no answer started within ${limit} ms`);
    try {
      signal?.throwIfAborted();
      const sent = this.#session.request(request.method, url.pathname + url.search, fields, body);
      return this.#makeResponse(await within(limit, sent, late), request.method, done, fail);
    } catch (thrown) {
      throw fail(thrown);
    }
  }

  #makeResponse(answer, method, done, fail) {
    const headers = new Headers();
    const { status, fields } = answer;
    for (let at = 0; at < fields.length; at += 2) headers.append(fields[at], fields[at + 1]);
    const limit = this.#limits.responsePauseMs;
    const late = () => new ConnectionError(`${this.#server.label}: the answer paused for ${limit} ms`);
    if (method === 'HEAD' || BODILESS.includes(status)) {
      answer.next().then(done, fail);
      return new Response(null, { status, headers });
    }
    const source = {
      pull: async (controller) => {
        try {
          const piece = await within(limit, answer.next(), late);
          if (piece) {
            controller.enqueue(piece);
          } else {
            done();
            controller.close();
          }
        } catch (thrown) {
          controller.error(fail(thrown));
        }
      },
      cancel: () => {
        // What is left of the answer would have to be read before the next request.
        this.close();
        done();
      },
    };
    // Nothing is read before somebody wants it, so that a slow reader slows the server down.
    return new Response(new ReadableStream(source, { highWaterMark: 0 }), { status, headers });
  }

  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#session.breakOff();
    this.#carrier.close();
  }
}
