// Asks the arm of the bench for confide-web (bench/web/arm.mjs) for runs, as the harness does.
//
//     node tests/javascript/web_arm.mjs MODEL ARGUMENT...
//
// MODEL is the model server behind the gateway, and the rest are arguments of the arm. Ends 0 when all checks hold.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const [model, ...args] = process.argv.slice(2);
const TOKENS = 3;
const SEED = 7;
const arm = spawn(process.execPath, ['bench/web/arm.mjs', ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
const exited = once(arm, 'exit');
const lines = createInterface({ input: arm.stdout })[Symbol.asyncIterator]();

async function read() {
  const { value, done } = await lines.next();
  if (done) throw new Error('the arm ended');
  return JSON.parse(value);
}

/** The samples of a run, and its last line. */
async function run(id, params, requests = 2) {
  arm.stdin.write(`${JSON.stringify({ type: 'run', id, seed: SEED, requests, params })}\n`);
  const samples = [];
  for (;;) {
    const line = await read();
    assert.equal(line.id, id);
    if (line.type !== 'sample') return { samples, last: line };
    samples.push(line);
  }
}

/** The digest of the model server's own answer to a question of the arm. */
async function hashAnswer(number) {
  const messages = [{ role: 'user', content: `Question ${number} of block seed ${SEED}.` }];
  const body = JSON.stringify({ model: 'sim', max_tokens: TOKENS, seed: SEED, temperature: 0, messages });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`http://${model}/v1/chat/completions`, { method: 'POST', headers, body });
  return createHash('sha256').update((await answer.json()).choices[0].message.content).digest('hex');
}

const hello = await read();
assert.deepEqual([hello.type, hello.protocol, hello.simulated], ['hello', 1, true]);
assert.equal(hello.guarantee, 'none (simulated)');
const answers = [];
for (let number = 0; number < 2; number += 1) answers.push({ tokens: TOKENS, text_sha256: await hashAnswer(number) });
for (const [id, session] of ['new', 'kept'].entries()) {
  const { samples, last } = await run(id, { session, tokens: TOKENS });
  assert.equal(last.type, 'done', last.reason);
  assert.ok(last.metrics.module_ms > 0 && last.metrics.first_connect_ms > last.metrics.module_ms);
  assert.deepEqual(samples.map(({ answer }) => answer), answers);
  for (const { metrics, error, round_trips } of samples) {
    assert.equal(error, undefined);
    assert.equal(round_trips, session === 'kept' ? 0 : args.includes('--via') ? 4 : 2);
    assert.ok(metrics.ttft_ms > 0 && metrics.ttft_ms < metrics.last_token_ms, JSON.stringify(metrics));
    assert.ok(metrics.last_token_ms <= metrics.total_ms);
    assert.equal('connect_ms' in metrics, session === 'new');
  }
}
for (const [params, reason] of [[{ colour: 1 }, /unknown param colour/], [{ session: 'old' }, /wanted new or kept/]]) {
  const { last } = await run(9, params);
  assert.equal(last.type, 'error');
  assert.match(last.reason, reason);
}
arm.stdin.end('{"type":"end"}\n');
assert.deepEqual(await exited, [0, null]);
console.log(`web: the bench measures ${hello.arm}`);
