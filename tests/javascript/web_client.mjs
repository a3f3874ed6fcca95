// Drives the package `confide-web` in Node against a gateway, through the tunnel and over plain sockets.
//
//     node tests/javascript/web_client.mjs SETUP.json
//
// SETUP.json names the addresses and files that tests/web.sh has made. Ends 0 when all checks hold.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import net from 'node:net';

import { AttestationError, ConnectionError, createFetch, judgeReceipt } from '../../web/npm/index.js';
import { PROMPT, chat, checkChats, checkRefusals, readStream } from './web_checks.mjs';

const setup = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const policies = Object.fromEntries(
  ['key', 'session', 'snp', 'elsewhere'].map((name) => [name, readFileSync(`${setup.folder}/${name}.toml`, 'utf8')]));
let checks = 0;

async function check(name, run) {
  await run();
  checks += 1;
  console.log(`web: ${name}`);
}

/** Forwards TCP to `port`, or where it is led to later, and keeps what passes: what a tunnel's operator sees. */
async function record(port) {
  const seen = [];
  let target = port;
  const server = net.createServer((client) => {
    const onward = net.connect({ host: '127.0.0.1', port: target });
    for (const [from, to] of [[client, onward], [onward, client]]) {
      from.on('data', (bytes) => { seen.push(bytes); to.write(bytes); });
      from.on('end', () => to.end());
      from.on('error', () => to.destroy());
    }
  });
  await new Promise((resolve) => { server.listen(setup.recorder, '127.0.0.1', resolve); });
  return {
    bytes: () => Buffer.concat(seen),
    leadTo: (other) => { target = other; },
    close: () => server.close(),
  };
}

for (const binding of ['key', 'session']) {
  const server = `https://127.0.0.1:${setup[binding]}`;
  const policy = policies[binding];
  await check(`a chat and a streamed chat over a plain socket, ${binding} binding`, async () => {
    const fetch = await createFetch({ server, policy, binding });
    assert.equal(fetch.verification.guarantee, 'none (simulated)');
    assert.equal(fetch.verification.simulated, true);
    assert.equal(fetch.verification.scope, 'workload');
    assert.ok(fetch.verification.checks.every(({ outcome }) => outcome !== 'failed'));
    await checkChats(fetch);
    fetch.close();
  });
  await check(`the tunnel carries a chat and reads nothing, ${binding} binding`, async () => {
    const recorder = await record(setup[binding]);
    const throughRecorder = `https://127.0.0.1:${setup.recorder}`;
    const fetch = await createFetch({ server: throughRecorder, tunnel: setup.tunnel, policy, binding });
    const answer = await checkChats(fetch);
    fetch.close();
    const seen = recorder.bytes();
    assert.ok(seen.length > 5_000);
    for (const text of [PROMPT, answer, '/v1/chat/completions', 'data: ']) {
      assert.equal(seen.includes(text), false, `the tunnel saw ${text}`);
    }
    recorder.close();
  });
  await check(`another measurement and a simulated root are refused, ${binding} binding`, async () => {
    await checkRefusals({ server, policy, binding });
  });
}

await check('requests to another origin and unknown options are refused', async () => {
  const server = `https://127.0.0.1:${setup.key}`;
  const policy = policies.key;
  const fetch = await createFetch({ server, policy });
  await assert.rejects(fetch('https://example.org/'), TypeError);
  fetch.close();
  await assert.rejects(fetch('/v1/models'), ConnectionError);
  await assert.rejects(createFetch({ server, policy, proxy: 'x' }), TypeError);
  await assert.rejects(createFetch({ server, policy: 'roots = 7' }), TypeError);
  await assert.rejects(createFetch({ server: 'http://127.0.0.1', policy }), TypeError);
  await assert.rejects(createFetch({ server, policy, binding: 'none' }), TypeError);
  await assert.rejects(createFetch({ server, policy, binding: 'key', sessionVersion: 2 }), TypeError);
});

await check('a session version that there is none of is refused, and not rounded or wrapped', async () => {
  const server = `https://127.0.0.1:${setup.session}`;
  for (const sessionVersion of [0, 4, 2.5, -1, NaN, 256 + 2]) {
    const refused = createFetch({ server, policy: policies.session, sessionVersion });
    await assert.rejects(refused, { name: 'TypeError', message: /session version .*, wanted 1, 2 or 3/ });
  }
});

await check('a server that claims something else than the first is refused, and what was verified stays', async () => {
  const recorder = await record(setup.key);
  const server = `https://127.0.0.1:${setup.recorder}`;
  const fetch = await createFetch({ server, policy: policies.elsewhere, limits: { evidenceAgeMs: 1 } });
  const { verification } = fetch;
  recorder.leadTo(setup.elsewhere);
  // The evidence becomes too old, so that the next request opens a connection.
  await new Promise((resolve) => { setTimeout(resolve, 20); });
  await assert.rejects(fetch('/v1/models'), { name: 'AttestationError', check: 'guarantee' });
  assert.deepEqual(fetch.verification, verification);
  fetch.close();
  recorder.close();
});

await check('evidence of SEV-SNP is accepted, and refused by a policy of TDX', async () => {
  const server = `https://127.0.0.1:${setup.snp}`;
  const fetch = await createFetch({ server, policy: policies.snp, binding: 'session' });
  assert.equal(fetch.verification.simulated, true);
  assert.equal(fetch.verification.guarantee, 'none (simulated)');
  await checkChats(fetch);
  fetch.close();
  await assert.rejects(createFetch({ server, policy: policies.session, binding: 'session' }), AttestationError);
});

await check('the receipt of an answer is accepted, and refused for another answer or by another policy', async () => {
  const policy = readFileSync(`${setup.folder}/page.toml`, 'utf8');
  const fetch = await createFetch({ server: `https://127.0.0.1:${setup.attested}`, policy });
  const asked = chat(true);
  const answer = await fetch('/v1/chat/completions', asked);
  const response = new Uint8Array(await answer.arrayBuffer());
  const load = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
  const receipt = await load(`/v1/aci/receipts/${answer.headers.get('x-receipt-id')}`);
  const report = await load('/v1/aci/attestation');
  const files = { policy, report, receipt, request: new TextEncoder().encode(asked.body), response };
  const verdict = await judgeReceipt(files);
  assert.deepEqual([verdict.outcome, verdict.refused], ['accepted', null]);
  assert.equal(verdict.receipt.endpoint, '/v1/chat/completions');
  const change = (bytes) => bytes.map((byte, at) => (at === 9 ? byte ^ 1 : byte));
  const digest = (text, byte) => text.replace(/^(config_digest\s*=\s*\[?\s*")../m, `$1${byte}`);
  const pinned = policy.match(/^config_digest\s*=\s*\[?\s*"(..)/m)[1];
  const production = policy.replace(/^roots.*$/m, 'roots = ["intel-production"]');
  for (const [refused, changed] of [
    ['response', { response: change(response) }],
    ['request', { request: change(files.request) }],
    ['configuration', { policy: digest(policy, pinned === '00' ? '11' : '00') }],
    ['evidence', { policy: production }],
    ['report', { report: report.slice(1) }],
    ['receipt', { receipt: receipt.slice(1) }],
  ]) {
    assert.equal((await judgeReceipt({ ...files, ...changed })).refused, refused);
  }
  await assert.rejects(judgeReceipt({ ...files, policy: 'roots = 7' }), TypeError);
  await assert.rejects(judgeReceipt({ ...files, receipt: 'text' }), TypeError);
  fetch.close();
});

await check("the caller's collateral is used instead of the server's", async () => {
  const server = `https://127.0.0.1:${setup.key}`;
  const collateral = readFileSync(`${setup.folder}/attester/collateral.json`, 'utf8');
  const fetch = await createFetch({ server, policy: policies.key, collateral });
  fetch.close();
  const unreadable = createFetch({ server, policy: policies.key, collateral: '{}' });
  await assert.rejects(unreadable, (error) => error instanceof AttestationError && error.check === 'collateral');
});

await check('an abandoned or aborted answer leaves the others alone', async () => {
  const server = `https://127.0.0.1:${setup.session}`;
  const fetch = await createFetch({ server, policy: policies.session, binding: 'session' });
  const controller = new AbortController();
  const aborted = await fetch('/v1/chat/completions', { ...chat(true), signal: controller.signal });
  const abandoned = await fetch('/v1/chat/completions', chat(true));
  await abandoned.body.cancel();
  controller.abort();
  await assert.rejects(readStream(aborted), { name: 'AbortError' });
  const models = await fetch('/v1/models');
  assert.equal((await models.json()).object, 'list');
  fetch.close();
});

await check('a request that waits for a connection can be aborted, and a full queue refuses', async () => {
  const server = `https://127.0.0.1:${setup.key}`;
  const fetch = await createFetch({ server, policy: policies.key, limits: { connections: 1, waiting: 1 } });
  const first = await fetch('/v1/chat/completions', chat(true));
  const controller = new AbortController();
  const waiting = fetch('/v1/models', { signal: controller.signal });
  await new Promise((resolve) => { setTimeout(resolve, 20); });
  await assert.rejects(fetch('/v1/models'), /queue is full: 1 requests run and 1 wait/);
  controller.abort();
  await assert.rejects(waiting, { name: 'AbortError' });
  await readStream(first);
  const models = await fetch('/v1/models');
  assert.equal((await models.json()).object, 'list');
  fetch.close();
});

await check('a server that is not there, and a tunnel that refuses, are network errors', async () => {
  const policy = policies.key;
  const gone = createFetch({ server: `https://127.0.0.1:${setup.recorder}`, policy });
  await assert.rejects(gone, (error) => error instanceof ConnectionError && /cannot be reached/.test(error.message));
  const refused = createFetch({ server: 'https://127.0.0.1:9', tunnel: setup.tunnel, policy });
  await assert.rejects(refused, ConnectionError);
});

console.log(`web: ${checks} checks hold in Node ${process.version}`);
