// The measured part of the arm, the same in Node and in a page: sessions, chats and their times.

import { createFetch } from '../../web/npm/index.js';
import { loadVerifier } from '../../web/npm/wasm.js';

const KNOWN = ['delay_ms', 'network', 'session', 'sessions', 'tokens'];
/** Unmeasured requests at the start of a kept session, and at the start of a process's first one, as in the native arm. */
const UNMEASURED = 2;
const WARM_UP = 50;
/** Round trips that each step of opening a session takes, as the native client counts them (docs/channel.md). */
const ROUND_TRIPS = {
  /** TCP to the server. */
  socket: 1,
  /** TCP to the proxy, and the upgrade, within which the proxy opens TCP to the server. */
  tunnel: 3,
  /** The handshake of TLS 1.3. */
  handshake: 1,
  /** The exchange of session binding; with key binding, the evidence comes in the handshake. */
  evidence: { key: 0, session: 1 },
};

let options;
let isWarm = false;

/**
 * Takes the options of `createFetch` for every session, loads the WebAssembly, and opens a first session.
 *
 * Resolves to what was verified, to the milliseconds of loading, and to those until the first session was open.
 */
export async function prepare(fetchOptions) {
  options = fetchOptions;
  const start = performance.now();
  (await loadVerifier(options.policy)).free();
  const loaded = performance.now();
  const fetch = await createFetch(options);
  const opened = performance.now();
  const { verification } = fetch;
  fetch.close();
  return { verification, metrics: { module_ms: loaded - start, first_connect_ms: opened - start } };
}

/** Makes the requests of a run, and resolves to their samples. */
export async function measure({ requests, seed, params }) {
  const unknown = Object.keys(params).find((name) => !KNOWN.includes(name));
  if (unknown) throw new Error(`unknown param ${unknown}: wanted one of ${KNOWN.join(', ')}`);
  const { session = 'new', sessions = 1, tokens = 200 } = params;
  if (!['new', 'kept'].includes(session)) throw new Error(`param session: wanted new or kept, got ${session}`);
  const perSession = Math.max(1, Math.ceil(requests / sessions));
  const started = performance.now();
  const samples = [];
  let kept = null;
  try {
    for (let number = 0; number < requests; number += 1) {
      // The first request of a kept session opens the connection; it is not measured.
      if (session === 'kept' && number % perSession === 0) {
        kept?.close();
        kept = await createFetch(options);
        for (let count = isWarm ? UNMEASURED : WARM_UP; count > 0; count -= 1) {
          await streamCompletion(kept, { tokens, seed, number }, performance.now());
        }
        isWarm = true;
      }
      samples.push(await measureRequest(kept, { tokens, seed, number }, started));
    }
  } finally {
    kept?.close();
  }
  return samples;
}

/** Counts the round trips until a new session can carry its first application byte. */
function countRoundTrips({ tunnel, binding }) {
  const { socket, tunnel: tunnelled, handshake, evidence } = ROUND_TRIPS;
  return (tunnel ? tunnelled : socket) + handshake + evidence[binding];
}

/** One measured request, over a new session without `kept`; a failure is a sample that says so. */
async function measureRequest(kept, question, started) {
  const due = performance.now();
  const sample = { metrics: {}, at_s: (due - started) / 1e3 };
  let opened = null;
  try {
    if (kept) {
      sample.round_trips = 0;
    } else {
      opened = await createFetch(options);
      sample.round_trips = countRoundTrips(options);
      sample.metrics.connect_ms = performance.now() - due;
    }
    const { first, last, total, bytes, tokens, text } = await streamCompletion(kept ?? opened, question, due);
    Object.assign(sample.metrics, {
      ttft_ms: first,
      last_token_ms: last,
      total_ms: total,
      answer_bytes: bytes,
      effective_tokens_per_s: tokens / (total / 1e3),
      generation_tokens_per_s: (tokens - 1) / Math.max((total - first) / 1e3, 1e-9),
    });
    sample.answer = { tokens, text_sha256: await hashText(text) };
  } catch (error) {
    sample.error = String(error);
  } finally {
    opened?.close();
  }
  return sample;
}

/**
 * Sends one chat and reads the stream to its end, which has to be `data: [DONE]`. Times are milliseconds since `due`:
 * to the first and the last content, and to the end of the stream.
 */
async function streamCompletion(fetch, { tokens: wanted, seed, number }, due) {
  const answer = await fetch('/v1/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'sim', stream: true, max_tokens: wanted, seed, temperature: 0,
      messages: [{ role: 'user', content: `Question ${number} of block seed ${seed}.` }],
    }),
  });
  const decoder = new TextDecoder();
  const reader = answer.body.getReader();
  let [first, last, bytes, tokens, isDone, pending] = [null, null, 0, 0, false, ''];
  const text = [];
  for (let piece; (piece = (await reader.read()).value); ) {
    bytes += piece.byteLength;
    const lines = (pending + decoder.decode(piece, { stream: true })).split('\n');
    pending = lines.pop();
    for (const line of lines.filter((line) => line.startsWith('data: '))) {
      const data = line.slice('data: '.length).trim();
      if (data === '[DONE]') {
        isDone = true;
        continue;
      }
      const event = JSON.parse(data);
      if (event.error) throw new Error(`the server reports ${JSON.stringify(event.error)}`);
      const content = event.choices[0]?.delta?.content;
      if (!content) continue;
      last = performance.now() - due;
      first ??= last;
      tokens += 1;
      text.push(content);
    }
  }
  const total = performance.now() - due;
  if (!answer.ok || !isDone || !tokens) {
    throw new Error(`wanted a stream that ends in [DONE], got status ${answer.status} and ${tokens} tokens: ${pending}`);
  }
  return { first, last, total, bytes, tokens, text: text.join('') };
}

async function hashText(text) {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
