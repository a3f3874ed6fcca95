// Tinfoil's EHBP client for JavaScript against a gateway at an address: `node ehbp_peer.mjs http://HOST:PORT`.
// Run by tests/ehbp_peers.sh, in a folder that has `ehbp`.
import assert from 'node:assert/strict';
import { Identity, KeyConfigMismatchError, ProtocolError, Transport, createTransport } from 'ehbp';

const ALGORITHM = 'ehbp-x25519-hkdf-sha256-aes-256-gcm';
const base = process.argv[2];
const chat = `${base}/v1/chat/completions`;
const question = { model: 'sim', max_tokens: 8, messages: [{ role: 'user', content: 'Tell me of the house.' }] };
const send = (transport, path, body) =>
  transport.post(path, JSON.stringify(body), { headers: { 'content-type': 'application/json' } });

const report = await (await fetch(`${base}/v1/aci/attestation`)).json();
const keys = report.attestation.workload_keyset.e2ee_public_keys;
const key = keys.find((entry) => entry.algo === ALGORITHM).public_key;

const transport = await createTransport(base);
assert.equal(await transport.getServerPublicKeyHex(), key, 'the two keys differ');

const whole = await send(transport, chat, question);
assert.equal(whole.status, 200);
assert.ok(whole.headers.get('ehbp-response-nonce') && whole.headers.get('x-receipt-id'));
assert.ok((await whole.json()).choices[0].message.content);

const streamed = await send(transport, chat, { ...question, stream: true });
let pieces = 0;
let text = '';
for await (const piece of streamed.body) {
  pieces += 1;
  text += new TextDecoder().decode(piece);
}
assert.ok(pieces > 2 && text.endsWith('data: [DONE]\n\n'), text);

// One long frame, which is how this client sends every body.
const long = { ...question, metadata: { note: 'x'.repeat(2_000_000) } };
const answered = await send(transport, chat, long);
assert.equal(answered.status, 200, await answered.text());

// The model server's refusal is encrypted. The gateway's of a path is not, and this client shows no such answer.
const refused = await send(transport, chat, { ...question, model: 'other' });
assert.equal(refused.status, 404);
assert.equal((await refused.json()).error.code, 'model_not_found');
await assert.rejects(send(transport, `${base}/nowhere`, question), ProtocolError);

const other = new Transport(await Identity.fromPublicKeyHex('09' + '00'.repeat(31)), new URL(base).host);
await assert.rejects(send(other, chat, question), KeyConfigMismatchError);
console.log('ehbp-peers: ehbp (JavaScript): whole, streamed, long, refused, other key: as wanted');
