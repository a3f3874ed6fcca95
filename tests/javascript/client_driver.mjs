// Does with the package `confide-web` what each line of standard input says: the clients for Node and for the browser
// of tests/clients.py, which describes the commands and their answers.
//
//     node tests/javascript/client_driver.mjs [CHROMIUM PORT]
//
// With a browser, the commands run in a page of http://localhost:PORT.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname } from 'node:path';
import { createInterface } from 'node:readline';

import { Browser } from './browser.mjs';
import { run } from './client_commands.mjs';

const [chromium, port] = process.argv.slice(2);
const checkout = new URL('../../', import.meta.url);
const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm',
};
const PAGE = `<!doctype html><title>client</title><script type="module">
  import { run } from '/tests/javascript/client_commands.mjs';
  window.run = run;
</script>`;

function readServedFile(path) {
  if (path === '/') return PAGE;
  if (path.includes('..') || !/^\/(web\/npm|tests\/javascript)\//.test(path)) return null;
  return readFileSync(new URL(path.slice(1), checkout));
}

/** Opens the page in a browser; resolves to what runs a command in it, and what ends the browser. */
async function openPage() {
  const server = createServer((request, response) => {
    const content = readServedFile(request.url);
    response.writeHead(content ? 200 : 404, { 'content-type': TYPES[extname(request.url) || '.html'] ?? 'text/plain' });
    response.end(content ?? undefined);
  });
  await new Promise((resolve) => { server.listen(port, '127.0.0.1', resolve); });
  const browser = new Browser(chromium);
  const page = await browser.open(`http://localhost:${port}/`);
  await page.waitFor('window.run');
  return {
    run: (command) => page.evaluate(`run(${JSON.stringify(command)})`),
    close: async () => {
      await browser.close();
      server.close();
    },
  };
}

const client = chromium ? await openPage() : { run, close: () => {} };
try {
  for await (const line of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await client.run(JSON.parse(line))));
  }
} finally {
  await client.close();
}
process.exit();
