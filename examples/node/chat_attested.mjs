// Asks a model in a confidential VM with the `openai` package. No proxy runs next to this program.
//
//     web/build.sh && npm ci --prefix examples/node
//     node examples/node/chat_attested.mjs https://127.0.0.1:8443 sim/policy.toml
//
// Ends with status 1 where the server's evidence is refused: nothing was sent then.

import { readFileSync } from 'node:fs';
import { AttestationError, createFetch } from 'confide-web';
import OpenAI from 'openai';

const [server, policyFile] = process.argv.slice(2);
const policy = readFileSync(policyFile, 'utf8');

// Opens a connection and judges its evidence.
const fetch = await createFetch({ server, policy }).catch((error) => {
  if (!(error instanceof AttestationError)) throw error;
  console.error(`refused: check ${error.check}: ${error.message}`);
  process.exit(1);
});
console.log('verification:', JSON.stringify(fetch.verification, null, 2));

const client = new OpenAI({ baseURL: `${server}/v1`, apiKey: 'none', fetch });
const model = (await client.models.list()).data[0].id;
const request = { model, max_tokens: 24, messages: [{ role: 'user', content: 'What is confide?' }] };
const answer = await client.chat.completions.create(request);
console.log('answer:', answer.choices[0].message.content);

process.stdout.write('streamed: ');
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? '');
}
console.log();
fetch.close();
