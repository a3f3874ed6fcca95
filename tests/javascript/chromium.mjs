// A headless Chromium that shows one page until the page has reported.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const FLAGS = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

/** Opens `url` and waits for `report`, a promise; gives its value when the browser and its children have ended. */
export async function showPage(chromium, url, report) {
  const profile = mkdtempSync(join(tmpdir(), 'confide-web-'));
  const browser = spawn(chromium, [...FLAGS, `--user-data-dir=${profile}`, url], {
    // A group of its own, so that the browser's children end with it.
    detached: true,
    stdio: 'ignore',
  });
  try {
    return await report;
  } finally {
    const gone = new Promise((resolve) => { browser.once('exit', resolve); });
    if (browser.exitCode === null) {
      process.kill(-browser.pid, 'SIGKILL');
      await gone;
    }
    rmSync(profile, { recursive: true, force: true, maxRetries: 20 });
  }
}
