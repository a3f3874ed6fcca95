// One question to the model: the streamed answer, and its receipt.

import { judgeReceipt } from '../npm/index.js';

const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** A receipt is made once the answer has ended, which the page may learn first. */
const RECEIPT_WAITS_MS = [0, 100, 400, 1500];

/** Asks, and calls `onText` with each piece of the answer. Resolves to the exchanged bytes and the receipt's number. */
export async function ask(fetch, { model, messages, key, signal, onText }) {
  const request = new TextEncoder().encode(JSON.stringify({ model, stream: true, messages }));
  const headers = { 'content-type': 'application/json', ...credential(key) };
  const answer = await fetch('/v1/chat/completions', { method: 'POST', headers, body: request, signal });
  const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream');
  const events = new EventReader(onText);
  const response = await readBody(answer, (piece) => {
    if (isStream && answer.ok) events.read(piece);
  });
  if (!answer.ok) throw new Error(describeFailure(answer.status, response));
  if (!isStream) onText(JSON.parse(new TextDecoder().decode(response)).choices[0].message.content ?? '');
  return { request, response, receiptId: answer.headers.get('x-receipt-id') };
}

/** Fetches the receipt of an exchange and the report of its keyset, and judges them. `reports` keeps the reports. */
export async function fetchReceipt(fetch, { request, response, receiptId }, { policy, key, reports }) {
  const headers = credential(key);
  const receipt = await fetchReceiptBytes(fetch, receiptId, headers);
  const digest = JSON.parse(new TextDecoder().decode(receipt)).workload_keyset_digest;
  if (!reports.has(digest)) reports.set(digest, await fetchReport(fetch, digest, headers));
  const files = { report: reports.get(digest), receipt, request, response };
  return { files, verdict: await judgeReceipt({ policy, ...files }) };
}

/** The names of the host's models; none if it does not tell. */
export async function fetchModels(fetch, key) {
  const answer = await fetch('/v1/models', { headers: credential(key) });
  const text = await answer.text();
  if (!answer.ok) return [];
  const { data } = JSON.parse(text);
  return Array.isArray(data) ? data.map(({ id }) => id).filter((id) => typeof id === 'string').slice(0, 200) : [];
}

function credential(key) {
  return key ? { authorization: `Bearer ${key}` } : {};
}

async function fetchReceiptBytes(fetch, id, headers) {
  for (const wait of RECEIPT_WAITS_MS) {
    await new Promise((resolve) => { setTimeout(resolve, wait); });
    const answer = await fetch(`/v1/aci/receipts/${encodeURIComponent(id)}`, { headers });
    const bytes = new Uint8Array(await answer.arrayBuffer());
    if (answer.ok) return bytes;
    if (answer.status !== 404) throw new Error(describeFailure(answer.status, bytes));
  }
  throw new Error('the gateway does not have it');
}

/** The report of the current keyset, or of the one with this digest if that is another. */
async function fetchReport(fetch, digest, headers) {
  const current = await fetchBytes(fetch, '/v1/aci/attestation', headers);
  const { workload_keyset_digest: found } = JSON.parse(new TextDecoder().decode(current));
  return found === digest ? current : fetchBytes(fetch, `/v1/aci/attestation?keyset=${digest}`, headers);
}

async function fetchBytes(fetch, path, headers) {
  const answer = await fetch(path, { headers });
  const bytes = new Uint8Array(await answer.arrayBuffer());
  if (!answer.ok) throw new Error(describeFailure(answer.status, bytes));
  return bytes;
}

/** The message of an answer that is an error (at most 500 characters of it). */
function describeFailure(status, bytes) {
  const text = new TextDecoder().decode(bytes.subarray(0, 4096));
  let message = text;
  try {
    message = JSON.parse(text).error.message ?? text;
  } catch {
    // It is shown as it came.
  }
  return `status ${status}: ${String(message).slice(0, 500)}`;
}

/** All bytes of a body; `onPiece` gets each piece as it comes. */
async function readBody(answer, onPiece) {
  const reader = answer.body.getReader();
  const pieces = [];
  let length = 0;
  try {
    for (let read; !(read = await reader.read()).done; ) {
      length += read.value.byteLength;
      if (length > ANSWER_BYTES_MAX) throw new Error(`the answer is longer than ${ANSWER_BYTES_MAX} bytes`);
      pieces.push(read.value);
      onPiece(read.value);
    }
  } catch (error) {
    // The rest would have to be read before the next request; the connection is closed instead.
    reader.cancel().catch(() => {});
    throw error;
  }
  const joined = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.byteLength;
  }
  return joined;
}

/** Reads the text in a stream of chat completions. */
class EventReader {
  #decoder = new TextDecoder();
  #rest = '';
  #onText;

  constructor(onText) {
    this.#onText = onText;
  }

  read(bytes) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split('\n');
    this.#rest = lines.pop();
    for (const line of lines) {
      const data = line.startsWith('data:') ? line.slice('data:'.length).trim() : '[DONE]';
      if (data === '[DONE]') continue;
      const event = JSON.parse(data);
      if (event.error) throw new Error(`the model server: ${event.error.message ?? 'an error without a message'}`);
      const text = event.choices?.[0]?.delta?.content;
      if (text) this.#onText(text);
    }
  }
}
