// Serves the page in which the arm measures (a service of the bench): `node bench/web/page.mjs`.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname } from 'node:path';

const checkout = new URL('../../', import.meta.url);
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
/** The WebAssembly is fetched before anything is measured: how long that takes depends on the network. */
const PAGE = `<!doctype html><title>confide-web under measurement</title><script type="module">
  import { setWasmSource } from '/web/npm/index.js';
  import * as conversation from '/bench/web/conversation.mjs';
  const bytes = await (await fetch('/web/npm/confide_web_bg.wasm')).arrayBuffer();
  setWasmSource(async () => bytes);
  globalThis.conversation = conversation;
</script>`;

function readServedFile(path) {
  if (path === '/') return PAGE;
  if (!/^\/(web\/npm|bench\/web)\/\w+\.(js|mjs|wasm)$/.test(path)) return null;
  return readFileSync(new URL(path.slice(1), checkout));
}

const server = createServer((request, response) => {
  const content = readServedFile(request.url);
  response.writeHead(content ? 200 : 404, {
    'content-type': TYPES[extname(request.url)] ?? 'text/html',
    // Isolated from others, a page has a clock with steps of 5 µs; otherwise they are 100 µs.
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-embedder-policy': 'require-corp',
  });
  response.end(content ?? undefined);
});
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ ready: true, listen: `127.0.0.1:${server.address().port}` }));
});
