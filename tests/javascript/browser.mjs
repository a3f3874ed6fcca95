// A headless Chromium, driven over a pipe by its debugging protocol.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const COMMAND_MS = 30_000;
const POLL_MS = 50;
const FLAGS = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--hide-scrollbars',
];

/** A browser with a new profile, started with further flags. */
export class Browser {
  #process;
  #profile = mkdtempSync(join(tmpdir(), 'confide-page-'));
  #waiting = new Map();
  #sessions = new Map();
  #number = 0;
  #rest = '';

  constructor(chromium, more = []) {
    const flags = [...FLAGS, ...more, `--user-data-dir=${this.#profile}`, '--remote-debugging-pipe', 'about:blank'];
    // A group of its own, so that the browser's children end with it.
    const stdio = ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'];
    this.#process = spawn(chromium, flags, { detached: true, stdio });
    this.#process.stdio[4].setEncoding('utf8').on('data', (text) => this.#receive(text));
    this.#process.stdio[3].on('error', () => {});
  }

  #receive(text) {
    const messages = (this.#rest + text).split('\0');
    this.#rest = messages.pop();
    for (const message of messages.map((message) => JSON.parse(message))) {
      if (message.id) this.#waiting.get(message.id)?.(message);
      else this.#sessions.get(message.sessionId)?.(message.method, message.params);
    }
  }

  /** Sends a command and resolves to its result. */
  send(method, params = {}, sessionId = undefined) {
    this.#number += 1;
    const id = this.#number;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method} got no answer`)), COMMAND_MS);
      this.#waiting.set(id, ({ result, error }) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        if (error) reject(new Error(`${method}: ${error.message}`));
        else resolve(result);
      });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  /** Opens a page of this address, with storage of its own if it has a context. */
  async open(url, { width = 1000, height = 900, scheme = 'light' } = {}) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    this.#sessions.set(sessionId, (method, params) => page.notice(method, params));
    for (const domain of ['Page', 'Runtime', 'Log']) await page.send(`${domain}.enable`);
    await page.resize(width, height);
    await page.prefer(scheme);
    await page.send('Page.navigate', { url });
    return page;
  }

  async close() {
    const gone = new Promise((resolve) => { this.#process.once('exit', resolve); });
    if (this.#process.exitCode === null) {
      process.kill(-this.#process.pid, 'SIGKILL');
      await gone;
    }
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 20 });
  }
}

/** Opens `url` and waits for `report`, a promise; gives its value when the browser and its children have ended. */
export async function showPage(chromium, url, report) {
  const browser = new Browser(chromium);
  try {
    await browser.open(url);
    return await report;
  } finally {
    await browser.close();
  }
}

/** A page, and what its console complained of. */
class Page {
  #browser;
  #session;
  #target;
  complaints = [];

  constructor(browser, session, target) {
    this.#browser = browser;
    this.#session = session;
    this.#target = target;
  }

  notice(method, params) {
    if (method === 'Runtime.exceptionThrown') {
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === 'Log.entryAdded' && ['error', 'warning'].includes(params.entry.level)) {
      this.complaints.push(`${params.entry.text} ${params.entry.url ?? ''}`);
    }
  }

  send(method, params) {
    return this.#browser.send(method, params, this.#session);
  }

  resize(width, height) {
    const metrics = { width, height, deviceScaleFactor: 1, mobile: width < 500 };
    return this.send('Emulation.setDeviceMetricsOverride', metrics);
  }

  /** Makes the page light or dark. */
  prefer(scheme) {
    return this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
  }

  /** The value of an expression in the page. */
  async evaluate(expression) {
    const options = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', options);
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description}`);
    return result.value;
  }

  /** Waits until an expression is true in the page, and returns its value. */
  async waitFor(expression, ms = 20_000) {
    const end = Date.now() + ms;
    for (;;) {
      const value = await this.evaluate(expression).catch(() => false);
      if (value) return value;
      if (Date.now() > end) {
        const text = await this.evaluate('document.body?.innerText').catch(String);
        throw new Error(`not true in time: ${expression}\n${this.complaints.join('\n')}\n${text}`);
      }
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
    }
  }

  /** Clicks in the middle of an element as a person does: some things a page may do only then. */
  async click(selector) {
    await this.send('Page.bringToFront');
    const { x, y } = await this.evaluate(`(() => {
      const found = document.querySelector(${JSON.stringify(selector)});
      found.scrollIntoView({ block: 'center', behavior: 'instant' });
      const { left, top, width, height } = found.getBoundingClientRect();
      return { x: left + width / 2, y: top + height / 2 };
    })()`);
    for (const type of ['mousePressed', 'mouseReleased']) {
      await this.send('Input.dispatchMouseEvent', { type, x, y, button: 'left', clickCount: 1 });
    }
  }

  async screenshot() {
    const { data } = await this.send('Page.captureScreenshot', { captureBeyondViewport: true });
    return Buffer.from(data, 'base64');
  }

  close() {
    return this.#browser.send('Target.closeTarget', { targetId: this.#target });
  }
}
