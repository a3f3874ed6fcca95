// The checks that hold in Node and in a page alike.

import { AttestationError, createFetch } from '../../web/npm/index.js';

/** What nobody between may read. */
export const PROMPT = 'the prompt that nobody between may read';

export function hold(condition, message) {
  if (!condition) throw new Error(`check does not hold: ${message}`);
}

/** A request to the simulated engine. */
export function chat(stream) {
  return {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'sim', stream, max_tokens: 12, messages: [{ role: 'user', content: PROMPT }] }),
  };
}

/** Reads a streamed body, piece by piece. */
export async function readStream(response) {
  const reader = response.body.getReader();
  const pieces = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return pieces;
    pieces.push(new TextDecoder().decode(value));
  }
}

/** Asks for an answer as a whole, and for a streamed one. Returns the text of the first. */
export async function checkChats(fetch) {
  const answer = await fetch('/v1/chat/completions', chat(false));
  hold(answer.status === 200, `status ${answer.status}`);
  hold(answer.headers.get('content-type') === 'application/json', 'the answer is JSON');
  const text = (await answer.json()).choices[0].message.content;
  hold(text.length > 0, 'the answer has words');

  const streamed = await fetch('/v1/chat/completions', chat(true));
  hold(streamed.headers.get('content-type').startsWith('text/event-stream'), 'the answer is streamed');
  const pieces = await readStream(streamed);
  hold(pieces.length > 3, `the answer came in ${pieces.length} pieces`);
  hold(pieces.join('').includes('data: [DONE]'), 'the stream came to its end');
  return text;
}

async function refuse(options, wanted) {
  let error;
  try {
    await createFetch(options);
  } catch (thrown) {
    error = thrown;
  }
  hold(error instanceof AttestationError, `refused by its evidence: ${error}`);
  hold(error.check === wanted, `check ${error.check}, wanted ${wanted}: ${error.message}`);
  hold(error.message.includes(`is not accepted: check \`${wanted}\` failed: `), error.message);
  hold(error.hint.length > 0 && error.verification.outcome === 'rejected', 'it says what to do, and all checks');
}

/** Policies for another program and for production refuse this server. */
export async function checkRefusals({ policy, ...options }) {
  const flip = (_, before, byte) => before + (byte === 'ff' ? '00' : 'ff');
  const other = policy.replace(/^(mrtd\s*=\s*\[?\s*")(..)/m, flip);
  hold(other !== policy, 'the policy names the program');
  await refuse({ ...options, policy: other }, 'measurements');
  const production = policy.replace(/^roots.*$/m, 'roots = ["intel-production"]');
  await refuse({ ...options, policy: production }, 'root');
}
