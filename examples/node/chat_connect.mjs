// Asks a model in a confidential VM with the `openai` package alone: `confide connect` attests the connection.
//
//     npm ci --prefix examples/node
//     confide connect https://127.0.0.1:8443 --policy sim/policy.toml -- node examples/node/chat_connect.mjs
//
// `confide connect` runs this program only if it accepts the server's evidence, and sets OPENAI_BASE_URL and
// OPENAI_API_KEY, which the package reads.

import OpenAI from 'openai';

const client = new OpenAI();
const verification = new URL('/.well-known/confide/verification', client.baseURL);
console.log('verification:', JSON.stringify(await (await fetch(verification)).json(), null, 2));

const model = (await client.models.list()).data[0].id;
const request = { model, max_tokens: 24, messages: [{ role: 'user', content: 'What is confide?' }] };
const answer = await client.chat.completions.create(request);
console.log('answer:', answer.choices[0].message.content);

process.stdout.write('streamed: ');
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? '');
}
console.log();
