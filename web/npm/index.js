// `fetch` over attested TLS that ends in here: in the page, or in the Node process. Nothing between here and
// the attested program reads what is sent; the tunnel sees TLS records only.

import { openConnection } from './connection.js';
import { toError } from './errors.js';
import { readLimits } from './limits.js';
import { Pool } from './pool.js';
import { tunnelAddress } from './websocket.js';
import { checkGuarantee, loadReceiptVerdict, loadVerifier } from './wasm.js';

export { AttestationError, ConnectionError } from './errors.js';
export { setWasmSource } from './wasm.js';

const OPTIONS = ['server', 'policy', 'tunnel', 'collateral', 'binding', 'sessionVersion', 'limits'];

/**
 * Connects to `server`, verifies it by `policy`, and resolves to a `fetch` for that server alone.
 *
 * See index.d.ts for the options and the errors.
 */
export async function createFetch(options) {
  const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknown) throw new TypeError(`option ${unknown} is not known, wanted ${OPTIONS.join(', ')}`);
  const server = readServer(options.server);
  const limits = readLimits(options.limits);
  if (options.tunnel) tunnelAddress(options.tunnel, server.target);
  else if (!globalThis.process?.versions?.node) throw new TypeError('a page needs a `tunnel`: it has no sockets');
  const verifier = await makeVerifier(server.label, options.policy, options.collateral);
  let first;
  let accepted;
  const pool = new Pool(async () => {
    const connection = await openConnection(verifier, server, options, limits).catch((thrown) => {
      throw toError(server.label, thrown);
    });
    first ??= connection.verification;
    try {
      // The caller was shown the first one.
      checkGuarantee(JSON.stringify(first), JSON.stringify(connection.verification));
    } catch (thrown) {
      connection.close();
      throw toError(server.label, thrown);
    }
    accepted = connection.verification;
    return connection;
  }, limits);
  // Verified before anybody relies on it.
  pool.release(await pool.acquire());
  const fetch = (input, init) => send(pool, server, limits, input, init);
  Object.defineProperty(fetch, 'verification', {
    get: () => ({ endpoint: server.label, via: options.tunnel ?? null, ...accepted }),
  });
  fetch.close = () => pool.close();
  return fetch;
}

/**
 * Judges the receipt of an answer (docs/receipts.md) by a policy, now: report, quote, keyset, signature, and the bytes
 * of request and answer.
 *
 * See index.d.ts for the members.
 */
export async function judgeReceipt(files) {
  const { policy, ...documents } = files;
  if (typeof policy !== 'string') throw new TypeError('policy is missing: wanted the text of a policy in TOML');
  for (const name of ['report', 'receipt', 'request', 'response']) {
    if (!(documents[name] instanceof Uint8Array)) throw new TypeError(`${name} is missing: wanted a Uint8Array`);
  }
  try {
    return JSON.parse(await loadReceiptVerdict(files));
  } catch (thrown) {
    throw toError('receipt', thrown);
  }
}

async function makeVerifier(label, policy, collateral) {
  if (typeof policy !== 'string') throw new TypeError('policy is missing: wanted the text of a policy in TOML');
  const bytes = typeof collateral === 'string' ? new TextEncoder().encode(collateral) : collateral;
  try {
    return await loadVerifier(policy, bytes);
  } catch (thrown) {
    throw toError(label, thrown);
  }
}

function readServer(text) {
  const wanted = 'wanted https://HOST[:PORT] without user, path, query or fragment';
  let url;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new TypeError(`server address ${text} is not usable: ${wanted}`, { cause });
  }
  if (url.protocol !== 'https:' || url.pathname !== '/' || url.search || url.hash || url.username || url.password) {
    throw new TypeError(`server address ${text} is not usable: ${wanted}`);
  }
  const port = Number(url.port || 443);
  const target = `${url.hostname}:${port}`;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return { label: text, origin: url.origin, authority: url.host, target, name: host, host, port };
}

/** Waits for a connection, until the caller aborts; one that comes later is given back. */
async function acquire(pool, signal) {
  signal?.throwIfAborted();
  const acquiring = pool.acquire();
  let abort;
  const aborted = new Promise((_, reject) => {
    abort = () => {
      acquiring.then((connection) => pool.release(connection), () => {});
      reject(signal.reason);
    };
    signal?.addEventListener('abort', abort, { once: true });
  });
  try {
    return await Promise.race([acquiring, aborted]);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

async function send(pool, server, limits, input, init) {
  const url = new URL(input instanceof Request ? input.url : input, server.origin);
  if (url.origin !== server.origin) {
    throw new TypeError(`${url.origin} is not the attested server: this fetch sends to ${server.origin} only`);
  }
  const request = input instanceof Request ? new Request(input, init) : new Request(url, init);
  const body = new Uint8Array(await request.arrayBuffer());
  if (body.byteLength > limits.requestBytes) {
    throw new TypeError(`request body is ${body.byteLength} bytes, wanted at most ${limits.requestBytes}`);
  }
  const connection = await acquire(pool, request.signal);
  return connection.send(request, body, () => pool.release(connection));
}
