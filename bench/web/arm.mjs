// An arm of the bench (bench/PROTOCOL.md): chats by the package confide-web, in Node or in a page of a headless
// Chromium.
//
//     node bench/web/arm.mjs --server HOST:PORT --policy FILE [--via ws://HOST:PORT] [--page http://HOST:PORT]
//
// With --page the client runs in that page (page.mjs serves it), which reaches the server through the tunnel alone.

import { spawnSync } from 'node:child_process';
import { accessSync, constants, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { Browser } from '../../tests/javascript/browser.mjs';

const NODE_MIN = 20;
const CHROMIUMS = ['chromium', 'chromium-browser', 'google-chrome'];
/** A page in the background would get its timers late. */
const BROWSER_FLAGS = ['--disable-background-timer-throttling', '--disable-renderer-backgrounding'];
const NOTE = 'the client remembers no platform and no endorsements from session to session; collateral is stapled';

const TEXT = { type: 'string' };
const { values: args } = parseArgs({ options: { server: TEXT, policy: TEXT, via: TEXT, page: TEXT } });

function writeLine(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** The client in this process. */
async function openNode() {
  const conversation = await import('./conversation.mjs');
  return {
    name: `Node ${process.version}`,
    call: (name, argument) => conversation[name](argument),
    close: async () => {},
  };
}

/** The client in a page. */
async function openPage(address) {
  const browser = new Browser(findChromium(), BROWSER_FLAGS);
  const page = await browser.open(address);
  await page.waitFor('globalThis.conversation !== undefined && crossOriginIsolated');
  const { product } = await browser.send('Browser.getVersion');
  return {
    name: `Chromium ${product.split('/')[1]}`,
    call: (name, argument) => page.evaluate(`conversation.${name}(${JSON.stringify(argument)})`),
    close: () => browser.close(),
  };
}

function findChromium() {
  const paths = process.env.PATH.split(':').flatMap((folder) => CHROMIUMS.map((name) => join(folder, name)));
  const found = paths.find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
  if (!found) throw new Error(`no Chromium: wanted one of ${CHROMIUMS.join(', ')} in PATH`);
  return found;
}

async function serveRuns() {
  const { version } = JSON.parse(readFileSync(new URL('../../web/npm/package.json', import.meta.url)));
  const client = await (args.page ? openPage(args.page) : openNode());
  try {
    await answerRuns(client, version);
  } finally {
    await client.close();
  }
}

async function answerRuns(client, version) {
  const options = { server: `https://${args.server}`, policy: readFileSync(args.policy, 'utf8'), binding: 'key' };
  if (args.via) options.tunnel = args.via;
  const { verification, metrics } = await client.call('prepare', options);
  writeLine({
    type: 'hello', protocol: 1, version: `confide-web ${version}, ${client.name}`,
    arm: `confide-web in ${client.name}${args.via ? ', through the tunnel' : ''}`,
    simulated: verification.simulated, guarantee: verification.guarantee, note: NOTE,
  });
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if (order.type === 'end') break;
    const { id } = order;
    try {
      const start = performance.now();
      const before = process.cpuUsage();
      const samples = await client.call('measure', order);
      const { user, system } = process.cpuUsage(before);
      const done = { type: 'done', id, metrics, wall_s: (performance.now() - start) / 1e3 };
      // A page's work is that of the browser's processes, whose CPU time the harness reads.
      if (!args.page) done.cpu_s = (user + system) / 1e6;
      for (const sample of samples) writeLine({ type: 'sample', id, ...sample });
      writeLine(done);
    } catch (error) {
      writeLine({ type: 'error', id, reason: String(error) });
    }
  }
}

const needsFlag = args.via && !args.page && !globalThis.WebSocket;
if (Number.parseInt(process.versions.node, 10) < NODE_MIN) {
  const cannot = `needs Node ${NODE_MIN} or later, this is ${process.version}`;
  writeLine({ type: 'hello', protocol: 1, arm: 'confide-web', version: '', cannot });
} else if (needsFlag && !process.execArgv.includes('--experimental-websocket')) {
  // Node 20 has a WebSocket behind a flag.
  const flags = ['--experimental-websocket', fileURLToPath(import.meta.url), ...process.argv.slice(2)];
  process.exitCode = spawnSync(process.execPath, flags, { stdio: 'inherit' }).status ?? 1;
} else {
  await serveRuns();
  process.exit();
}
