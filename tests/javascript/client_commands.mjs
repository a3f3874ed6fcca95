// Does with the package `confide-web` what a command of tests/clients.py says, in Node and in a page alike.

import { AttestationError, createFetch } from '../../web/npm/index.js';

let attested;

/** Runs a command; resolves to the answer to it. */
export async function run(command) {
  try {
    return await runUnguarded(command);
  } catch (error) {
    if (error instanceof AttestationError) return { refused: error.message, check: error.check };
    return { failed: `${error.name}: ${error.message}` };
  }
}

async function runUnguarded(command) {
  if (command.do === 'open') {
    const { server, policy, binding } = command;
    attested = await createFetch({
      server, policy, binding,
      tunnel: command.tunnel ?? undefined,
      sessionVersion: command.session_version ?? undefined,
      limits: { evidenceAgeMs: command.evidence_age_s * 1000 },
    });
    return {};
  }
  if (command.do === 'close') {
    attested.close();
    return {};
  }
  const headers = { 'content-type': 'application/json' };
  const answer = await attested('/v1/chat/completions', { method: 'POST', headers, body: command.body });
  const pieces = [];
  const decoder = new TextDecoder();
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return { status: answer.status, pieces };
    pieces.push(decoder.decode(value, { stream: true }));
  }
}
