// A carrier over a plain TCP socket of Node.

import { ConnectionError } from './errors.js';

/** Opens a socket; resolves when it is connected. */
export async function openSocket(host, port) {
  const { connect } = await import('node:net');
  const socket = connect({ host, port });
  socket.setNoDelay(true);
  await new Promise((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', (cause) => reject(new ConnectionError(cause.message, { cause })));
  });
  socket.on('error', () => {});
  return new SocketCarrier(socket);
}

class SocketCarrier {
  #socket;

  constructor(socket) {
    this.#socket = socket;
  }

  /** The bytes of the server, piece by piece; the socket is paused while they are not read. */
  [Symbol.asyncIterator]() {
    return this.#socket[Symbol.asyncIterator]();
  }

  /** Sends bytes, and waits while the socket takes no more. */
  async send(bytes) {
    await new Promise((resolve, reject) => {
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  endSending() {
    this.#socket.end();
  }

  close() {
    this.#socket.destroy();
  }
}
