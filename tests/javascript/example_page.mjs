// Uses examples/page/chat.html in a headless Chromium as a reader does: opens it, and asks if the server is accepted.
//
//     node tests/javascript/example_page.mjs CHROMIUM PORT POLICY SERVER TUNNEL
//
// Prints the page's verdict and its answer.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname } from 'node:path';

import { showPage } from './browser.mjs';

const [chromium, port, policy, server, tunnel] = process.argv.slice(2);
const checkout = new URL('../../', import.meta.url);
const DEADLINE_MS = 60_000;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm' };

/** The reader: presses the button when it can be pressed, and reports what the page says. */
const READER = `<script type="module">
  const text = (id) => document.getElementById(id).textContent;
  const button = document.querySelector('button');
  while (text('verdict').startsWith('Connecting')) await new Promise((resolve) => { setTimeout(resolve, 20); });
  if (!button.disabled) {
    button.click();
    while (!text('answer')) await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
  await fetch('/report', { method: 'POST', body: text('verdict') + '\\nanswer: ' + text('answer') });
</script>`;

function readFor(path) {
  if (path === '/sim/policy.toml') return readFileSync(policy);
  if (path === '/examples/page/chat.html') return readFileSync(new URL(path.slice(1), checkout), 'utf8') + READER;
  return /^\/web\/npm\/\w+\.(js|wasm)$/.test(path) ? readFileSync(new URL(path.slice(1), checkout)) : null;
}

const report = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error('the page did not report in time')), DEADLINE_MS).unref();
  createServer(async (request, response) => {
    if (request.method === 'POST') {
      let text = '';
      for await (const piece of request) text += piece;
      response.end();
      resolve(text);
      return;
    }
    const path = new URL(request.url, 'http://localhost').pathname;
    const found = readFor(path);
    response.writeHead(found ? 200 : 404, { 'content-type': TYPES[extname(path)] ?? 'text/plain' });
    response.end(found ?? undefined);
  }).listen(port, '127.0.0.1');
});

const query = new URLSearchParams({ server, tunnel });
console.log(await showPage(chromium, `http://localhost:${port}/examples/page/chat.html?${query}`, report));
process.exit();
