// Every limit of the package. `createFetch({ limits })` replaces single ones.

export const DEFAULT_LIMITS = Object.freeze({
  /** Milliseconds for the socket, or the tunnel with its upgrade. */
  dialMs: 5_000,
  /** Milliseconds for the TLS handshake, the evidence and its appraisal together. */
  channelMs: 10_000,
  /** Connections to the server, and so the requests that run at once. */
  connections: 6,
  /** Requests that wait for a connection; further ones are refused at once. */
  waiting: 256,
  /** Milliseconds for which a request waits for a connection. */
  queueMs: 30_000,
  /** Milliseconds from sending a request to the head of its answer. */
  responseStartMs: 600_000,
  /** Milliseconds between two pieces of an answer. */
  responsePauseMs: 300_000,
  /** Milliseconds for which an idle connection is kept. */
  idleMs: 240_000,
  /** Age of evidence in milliseconds at which the next request gets a new connection. */
  evidenceAgeMs: 900_000,
  /** Bytes of a request's body. */
  requestBytes: 32 * 1024 * 1024,
  /** Bytes that a WebSocket may have received and the page not yet read; a WebSocket cannot be paused. */
  unreadBytes: 64 * 1024 * 1024,
});

/** The limits with the caller's own. */
export function readLimits(own = {}) {
  for (const [name, value] of Object.entries(own)) {
    if (!(name in DEFAULT_LIMITS)) throw new TypeError(`limits.${name} is not known`);
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new TypeError(`limits.${name} is ${value}, wanted a whole number of at least 1`);
    }
  }
  return { ...DEFAULT_LIMITS, ...own };
}

/** Waits for `promise`, at most `ms` milliseconds; then `onLate` is called and what it returns is thrown. */
export async function within(ms, promise, onLate) {
  let timer;
  const late = new Promise((_, reject) => {
    // A longer delay than this would fire at once.
    timer = setTimeout(() => reject(onLate()), Math.min(ms, 0x7fffffff));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
