// A carrier over the WebSocket tunnel (docs/channel.md, "Tunnel"): binary messages hold the bytes of the
// connection, and the text `eof` ends a direction.

import { ConnectionError } from './errors.js';

const MESSAGE_BYTES_MAX = 64 * 1024;
const UNSENT_BYTES_MAX = 1024 * 1024;
const POLL_MS = 10;

async function webSocketClass() {
  if (globalThis.WebSocket) return globalThis.WebSocket;
  try {
    return (await import('ws')).WebSocket;
  } catch (cause) {
    throw new TypeError('this Node has no WebSocket: install the package `ws`, or run Node 22 or later', { cause });
  }
}

/** The address at which the tunnel reaches `target` (HOST:PORT). */
export function tunnelAddress(tunnel, target) {
  const url = new URL(tunnel);
  if (!['ws:', 'wss:'].includes(url.protocol) || url.search || url.hash || url.username || url.password) {
    throw new TypeError(`tunnel address ${tunnel} is unusable, wanted ws://HOST:PORT[/PATH] or wss://`);
  }
  if (url.pathname === '/') url.pathname = '/tunnel';
  url.search = `?target=${encodeURIComponent(target)}`;
  return url.href;
}

/** Opens a tunnel; resolves when the proxy has reached the target. */
export async function openTunnel(tunnel, target, limits) {
  const WebSocket = await webSocketClass();
  const socket = new WebSocket(tunnelAddress(tunnel, target));
  socket.binaryType = 'arraybuffer';
  const carrier = new WebSocketCarrier(socket, limits);
  await carrier.opened;
  return carrier;
}

class WebSocketCarrier {
  #socket;
  #pieces = [];
  #unread = 0;
  #ended = false;
  #failure = null;
  #wake = () => {};

  constructor(socket, limits) {
    this.#socket = socket;
    this.opened = new Promise((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onerror = () => {
        this.#fail('the tunnel refused or broke; check that it runs, and its --allow and --allow-origin');
        reject(this.#failure);
      };
    });
    socket.onmessage = ({ data }) => this.#receive(data, limits.unreadBytes);
    socket.onclose = () => {
      if (!this.#ended) this.#fail('tunnel ended without its end-of-stream mark');
    };
  }

  #receive(data, unreadMax) {
    if (data === 'eof') {
      this.#ended = true;
    } else if (typeof data === 'string' || data.byteLength > MESSAGE_BYTES_MAX || this.#ended) {
      this.#fail('the tunnel broke its protocol');
    } else if ((this.#unread += data.byteLength) > unreadMax) {
      this.#fail(`more than ${unreadMax} bytes came that were not read`);
    } else {
      this.#pieces.push(new Uint8Array(data));
    }
    this.#wake();
  }

  #fail(message) {
    // Node's WebSocket reports an error again while it is being closed.
    if (this.#failure) return;
    this.#failure = new ConnectionError(message);
    this.#wake();
    this.#socket.close();
  }

  /** The bytes of the server, piece by piece. */
  async *[Symbol.asyncIterator]() {
    for (;;) {
      const piece = this.#pieces.shift();
      if (piece) {
        this.#unread -= piece.byteLength;
        yield piece;
      } else if (this.#failure) {
        throw this.#failure;
      } else if (this.#ended) {
        return;
      } else {
        await new Promise((resolve) => { this.#wake = resolve; });
      }
    }
  }

  /** Sends bytes, and waits while too many are unsent. */
  async send(bytes) {
    while (this.#socket.bufferedAmount > UNSENT_BYTES_MAX && !this.#failure) {
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
    }
    if (this.#failure) throw this.#failure;
    this.#socket.send(bytes);
  }

  endSending() {
    if (this.#socket.readyState === 1) this.#socket.send('eof');
  }

  close() {
    this.#fail('the connection was closed');
  }
}
