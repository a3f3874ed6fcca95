// Drives the package `confide-web` in a headless Chromium: serves a page, and waits for its report.
//
//     node tests/javascript/web_page.mjs CHROMIUM SETUP.json
//
// Ends 0 when all checks of the page hold.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import net from 'node:net';
import { extname, join } from 'node:path';

import { showPage } from './browser.mjs';

const [chromium, setupFile] = process.argv.slice(2);
const setup = JSON.parse(readFileSync(setupFile, 'utf8'));
const checkout = new URL('../../', import.meta.url);
const DEADLINE_MS = 120_000;
const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json',
  '.wasm': 'application/wasm', '.toml': 'text/plain',
};

/** The gateway to which the tunnel's one target leads just now. */
let gateway = setup.key;
const forwarder = net.createServer((client) => {
  const onward = net.connect({ host: '127.0.0.1', port: gateway });
  client.pipe(onward).pipe(client);
  client.on('error', () => onward.destroy());
  onward.on('error', () => client.destroy());
});
forwarder.listen(setup.recorder, '127.0.0.1');

function readFor(path) {
  if (path === '/setup.json') return readFileSync(setupFile);
  if (/^\/(key|session)\.toml$/.test(path)) return readFileSync(join(setup.folder, path));
  if (path === '/') return readFileSync(new URL('tests/javascript/web_page.html', checkout));
  if (path.includes('..') || !/^\/(web\/npm|tests\/javascript)\//.test(path)) return null;
  return readFileSync(new URL(path.slice(1), checkout));
}

const reported = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error('the page did not report in time')), DEADLINE_MS).unref();
  const server = createServer(async (request, response) => {
    if (request.method === 'POST') {
      let text = '';
      for await (const piece of request) text += piece;
      if (request.url.startsWith('/forward/')) gateway = setup[request.url.slice('/forward/'.length)];
      response.end();
      if (request.url === '/result') resolve(JSON.parse(text));
      return;
    }
    const path = request.url;
    const found = readFor(path);
    response.writeHead(found ? 200 : 404, { 'content-type': TYPES[extname(path) || '.html'] ?? 'text/plain' });
    response.end(found ?? undefined);
  });
  server.listen(setup.page, '127.0.0.1');
});

try {
  const { passed = [], error } = await showPage(chromium, `http://localhost:${setup.page}/`, reported);
  for (const name of passed) console.log(`web: in Chromium: ${name}`);
  if (error) throw new Error(error);
  process.exitCode = 0;
} catch (error) {
  console.error(`web: in Chromium: ${error.message}`);
  process.exitCode = 1;
}
process.exit();
