// Drives the page for visitors, dist/confide-page.html, in a headless Chromium: served by a gateway, from another
// origin and from disk.
//
//     node tests/javascript/page_checks.mjs CHROMIUM SETUP.json
//
// With CONFIDE_SCREENSHOTS=FOLDER it writes pictures too. Ends 0 when all checks hold.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { delimiter, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { Browser } from './browser.mjs';
import { hold } from './web_checks.mjs';

const [chromium, setupFile] = process.argv.slice(2);
const setup = JSON.parse(readFileSync(setupFile, 'utf8'));
const released = readFileSync(setup.released);
const policy = readFileSync(join(setup.folder, 'page.toml'), 'utf8');
const PATH = '/.well-known/confide/page';
const QUESTION = 'What does a receipt say?';

const server = (port) => `https://127.0.0.1:${port}`;
const served = (port) => `http://127.0.0.1:${port}`;
const fragment = (attested, tunnel) => `#server=${server(attested)}&tunnel=ws://127.0.0.1:${tunnel}`;
const fromDisk = `${pathToFileURL(setup.released)}${fragment(setup.attested, setup.served)}`;
const browser = new Browser(chromium);

async function takePicture(page, name) {
  const folder = process.env.CONFIDE_SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${name}.png`), await page.screenshot());
}

/** Enters a policy and asks for the verdict. */
async function verify(page, text, { remember = false } = {}) {
  await page.waitFor('document.getElementById("verify")?.isConnected && document.readyState === "complete"');
  await page.evaluate(`document.getElementById('policy').value = ${JSON.stringify(text)}`);
  await page.evaluate(`document.getElementById('remember').checked = ${remember}`);
  await page.evaluate('document.getElementById("verify").click()');
  return readVerdict(page);
}

async function readVerdict(page) {
  await page.waitFor('!document.getElementById("result").hidden && !document.getElementById("verify").disabled');
  return page.evaluate(`({
    title: document.getElementById('verdict').textContent.trim(),
    text: document.getElementById('result').innerText,
    simulated: document.querySelector('.simulated')?.innerText ?? null,
    steps: Object.fromEntries([...document.querySelectorAll('.step')].map((s) => [s.dataset.step, s.dataset.outcome])),
    words: [...document.querySelectorAll('.step h4 .outcome')].map((outcome) => outcome.innerText.trim()),
    command: document.querySelector('.command')?.textContent,
    canChat: !document.getElementById('chat').hidden,
  })`);
}

function holdAccepted({ title, simulated, steps, canChat, text }) {
  hold(title === '✓ Accepted (SIMULATED)', `the verdict is ${title}: ${text}`);
  hold(simulated?.startsWith('SIMULATED'), 'SIMULATED is in plain sight');
  const wanted = {
    hardware: 'passed', tcb: 'passed', measurement: 'passed', binding: 'passed', gpu: 'not_evaluated',
    weights: 'not_evaluated', workload: 'passed',
  };
  hold(JSON.stringify(steps) === JSON.stringify(wanted), `the steps are ${JSON.stringify(steps)}`);
  hold(canChat, 'the chat is open');
}

function holdRefused(verdict, check, step) {
  hold(verdict.title === '✕ Refused', `the verdict is ${verdict.title}: ${verdict.text}`);
  hold(verdict.text.includes(`Check that failed: ${check}`), `it names ${check}: ${verdict.text}`);
  hold(verdict.text.includes('hint: '), 'it says what to do');
  hold(verdict.steps[step] === 'failed', `the step ${step} has failed: ${JSON.stringify(verdict.steps)}`);
  hold(verdict.words.includes('failed') && verdict.words.includes('not evaluated'), 'outcomes are words');
  hold(!verdict.canChat, 'there is no chat');
}

function holdQuiet(page) {
  hold(page.complaints.length === 0, `the console is silent: ${page.complaints.join('\n')}`);
}

/** Asks a question and waits for the answer and its receipt. */
async function chat(page) {
  await page.waitFor('document.getElementById("model").value === "sim"');
  const before = await page.evaluate('document.querySelectorAll("[data-receipt]").length');
  await page.evaluate(`document.getElementById('question').value = ${JSON.stringify(QUESTION)}`);
  await page.evaluate('document.getElementById("send").click()');
  await page.waitFor(`document.querySelectorAll("[data-receipt]").length > ${before}`);
  const answer = await page.evaluate(`(() => {
    const item = [...document.querySelectorAll('.answer')].at(-1);
    const receipt = item.querySelector('[data-receipt]');
    return {
      text: item.querySelector('.text').textContent,
      receipt: receipt.dataset.receipt,
      shown: receipt.textContent,
      outcomes: Object.fromEntries([...receipt.querySelectorAll('.checks li')].map((line) =>
        [line.querySelector('.check-name').textContent, line.querySelector('.outcome').textContent.trim()])),
    };
  })()`);
  hold(answer.text.length > 20, `the answer has words: ${answer.text}`);
  hold(answer.receipt === 'accepted', `the receipt is accepted: ${answer.shown}`);
  for (const name of ['report', 'evidence', 'keyset', 'receipt', 'configuration', 'request', 'response']) {
    hold(answer.outcomes[name] === '✓ passed', `${name} of the receipt: ${answer.outcomes[name]}`);
  }
  hold(answer.outcomes.weights === '○ not evaluated', 'weights that the policy does not name are not evaluated');
  hold(answer.shown.includes('confide verify receipt receipt.json'), 'it shows the command for the receipt');
}

/** Runs a command that the page shows, in a shell and in a folder with the files that the page has saved. */
function runCommand(command, folder) {
  const PATH = [dirname(setup.program), process.env.PATH].join(delimiter);
  const { status, stdout, stderr } = spawnSync('sh', ['-c', command], {
    cwd: folder, env: { ...process.env, PATH }, encoding: 'utf8', timeout: 60_000,
  });
  return { status, text: stdout + stderr };
}

/** Saves the files that the page offers, and runs its commands: they say the same as the page. */
async function checkCommands(page) {
  const folder = join(setup.folder, 'saved');
  mkdirSync(folder);
  await browser.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: folder });
  const names = ['policy.toml', 'receipt.json', 'report.json', 'request.json', 'answer'];
  for (const name of names) {
    await page.evaluate(`document.querySelector('details.receipt a[download="${name}"]').click()`);
    const end = Date.now() + 20_000;
    while (!existsSync(join(folder, name)) && Date.now() < end) await page.evaluate('0');
    hold(existsSync(join(folder, name)), `${name} is saved`);
  }
  hold(readFileSync(join(folder, 'policy.toml'), 'utf8') === policy, 'the policy is saved as it was entered');
  const [connect, tunnel, receipt] = await page.evaluate(
    '[...document.querySelectorAll(".command")].map((command) => command.textContent)');
  for (const command of [connect, tunnel, receipt]) {
    const { status, text } = runCommand(command, folder);
    hold(status === 0, `status ${status} of ${command}: ${text}`);
  }
  writeFileSync(join(folder, 'policy.toml'), policy.replace(/^roots.*$/m, 'roots = ["intel-production"]'));
  for (const command of [connect, tunnel, receipt]) {
    const { status, text } = runCommand(command, folder);
    hold(status === 1, `status ${status} of ${command} with another policy: ${text}`);
  }
}

async function checkServed() {
  const page = await browser.open(`${served(setup.served)}/`);
  await page.waitFor('document.getElementById("server")?.value');
  const first = await page.evaluate('document.body.firstElementChild.innerText');
  hold(first.startsWith('This page was sent by the host that it checks, so it proves nothing'), `first line: ${first}`);
  hold(await page.evaluate('location.pathname') === PATH, 'the root leads to the page');
  hold(await page.evaluate('document.getElementById("policy").value') === '', 'no policy comes from the host');
  await takePicture(page, 'start-light');
  const verdict = await verify(page, policy, { remember: true });
  holdAccepted(verdict);
  hold(verdict.text.includes('only as honest as that host'), 'the verdict of a page from the host says so');
  hold(verdict.command === `confide connect ${server(setup.attested)} --policy policy.toml -- true`, verdict.command);
  await chat(page);
  await takePicture(page, 'accepted-light');
  await page.prefer('dark');
  await page.evaluate('document.querySelector("details.receipt").open = true');
  await takePicture(page, 'accepted-dark');
  await page.evaluate('globalThis.isOldPage = true');
  await page.send('Page.reload');
  await page.waitFor('!globalThis.isOldPage && document.readyState === "complete"');
  holdAccepted(await readVerdict(page));
  hold(await page.evaluate('document.getElementById("policy").value') === policy, 'the policy is still there');
  await chat(page);
  await page.evaluate('document.getElementById("remember").click()');
  await page.evaluate('globalThis.isOldPage = true');
  await page.send('Page.reload');
  await page.waitFor('!globalThis.isOldPage && document.readyState === "complete"');
  hold(await page.evaluate('localStorage.length') === 0, 'nothing is kept any more');
  hold(await page.evaluate('document.getElementById("result").hidden'), 'nothing is verified by itself any more');
  holdQuiet(page);
  await page.close();
}

async function checkRefusals() {
  const page = await browser.open(fromDisk);
  const flip = (_, before, byte) => before + (byte === 'ff' ? '00' : 'ff');
  const cases = [
    ['measurements', 'measurement', policy.replace(/^(mrtd\s*=\s*\[?\s*")(..)/m, flip)],
    ['config_digest', 'workload', policy.replace(/^(config_digest\s*=\s*\[?\s*")(..)/m, flip)],
    ['root', 'hardware', policy.replace(/^roots.*$/m, 'roots = ["intel-production"]')],
    ['scope', 'workload', policy.replace(/^config_digest.*$/m, '')],
  ];
  for (const [check, step, text] of cases) {
    hold(text !== policy, `the policy has ${check}`);
    holdRefused(await verify(page, text), check, step);
    if (check === 'config_digest') await takePicture(page, 'refused-light');
  }
  await page.evaluate('document.getElementById("binding").value = "session"');
  const unbound = await verify(page, policy);
  hold(!unbound.canChat && !unbound.title.includes('Accepted'), `another binding: ${unbound.text}`);
  hold(unbound.title !== '✕ Refused' || unbound.command.includes('--binding session'), unbound.command);
  await page.evaluate('document.getElementById("binding").value = ""');
  const unusable = await verify(page, 'rots = []');
  hold(unusable.title === '○ Not judged' && unusable.text.includes('rots'), `an unusable policy: ${unusable.text}`);
  holdAccepted(await verify(page, policy));
  holdQuiet(page);
  await page.close();
}

async function checkFromDisk() {
  const page = await browser.open(fromDisk, { width: 360, height: 780, scheme: 'dark' });
  holdAccepted(await verify(page, policy, { remember: true }));
  const first = await page.evaluate('document.body.firstElementChild.innerText');
  hold(first.startsWith('This page was opened from disk'), `first line: ${first}`);
  await chat(page);
  hold(await page.evaluate('document.documentElement.scrollWidth') === 360, 'it fits a phone');
  await takePicture(page, 'phone-dark');
  await checkCommands(page);
  await page.evaluate('globalThis.isOldPage = true');
  await page.send('Page.reload');
  await page.waitFor('!globalThis.isOldPage && document.readyState === "complete"');
  holdAccepted(await readVerdict(page));
  await checkNames(page);
  await page.evaluate('localStorage.clear()');
  holdQuiet(page);
  await page.close();
}

/** Every control has a name that a screen reader says. */
async function checkNames(page) {
  await page.send('Accessibility.enable');
  const { nodes } = await page.send('Accessibility.getFullAXTree');
  const roles = ['button', 'textbox', 'checkbox', 'link', 'combobox', 'region', 'log', 'DisclosureTriangle'];
  const controls = nodes.filter(({ ignored, role }) => !ignored && roles.includes(role?.value));
  const nameless = controls.filter(({ name }) => !name?.value).map(({ role }) => role.value);
  hold(controls.length > 15 && nameless.length === 0, `of ${controls.length} controls, without a name: ${nameless}`);
  const levels = await page.evaluate('[...document.querySelectorAll("h1,h2,h3,h4")].map((h) => Number(h.tagName[1]))');
  hold(levels.every((level, at) => level <= (levels[at - 1] ?? 0) + 1), `headings skip no level: ${levels}`);
}

async function checkFromAnotherOrigin() {
  const own = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(released);
  });
  await new Promise((resolve) => { own.listen(setup.page, '127.0.0.1', resolve); });
  const url = `http://localhost:${setup.page}/copy.html${fragment(setup.attested, setup.served)}`;
  const page = await browser.open(url);
  const verdict = await verify(page, policy);
  holdAccepted(verdict);
  hold(!verdict.text.includes('only as honest as that host'), 'the page came from elsewhere');
  const first = await page.evaluate('document.body.firstElementChild.innerText');
  hold(first.startsWith(`This page came from localhost:${setup.page}.`), `first line: ${first}`);
  await chat(page);
  await page.click('.copy button');
  await page.waitFor('document.querySelector(".copied").textContent === "Copied"');
  await checkStop(page);
  holdQuiet(page);
  await page.close();
  own.close();
}

/** An answer can be stopped, and the next question is answered. */
async function checkStop(page) {
  await page.evaluate('document.getElementById("question").value = "Count."');
  await page.evaluate('document.getElementById("send").click()');
  await page.waitFor('[...document.querySelectorAll(".answer .text")].at(-1).textContent.length > 0');
  await page.evaluate('document.getElementById("stop").click()');
  await page.waitFor('document.getElementById("stop").hidden && document.querySelector(".answer .problem")');
  const text = await page.evaluate('document.querySelector(".answer .problem").textContent');
  hold(text.startsWith('Stopped.'), text);
  await chat(page);
}

/** A host that serves a page which always says "accepted" is found out as docs/page.md describes. */
async function checkForgery() {
  const page = await browser.open(`${served(setup.forgedServed)}/`);
  const shown = await page.waitFor('document.body?.innerText');
  hold(shown.includes('Accepted'), 'the forged page says that the host is accepted');
  await page.close();
  // One: its bytes are not those of the release.
  const bytes = Buffer.from(await (await fetch(`${served(setup.forgedServed)}${PATH}`)).arrayBuffer());
  const digest = createHash('sha256').update(bytes).digest('hex');
  const [wanted] = readFileSync(`${setup.released}.sha256`, 'utf8').split(' ');
  hold(wanted === createHash('sha256').update(released).digest('hex'), 'the digest of the release is that of its file');
  hold(digest !== wanted, 'the digest of the forged page is another');
  // Two: the released file, from disk, refuses the host.
  const own = await browser.open(`${pathToFileURL(setup.released)}${fragment(setup.forged, setup.forgedServed)}`);
  holdRefused(await verify(own, policy), 'config_digest', 'workload');
  await own.close();
}

async function checkServing() {
  const answer = await fetch(`${served(setup.served)}${PATH}`);
  const bytes = Buffer.from(await answer.arrayBuffer());
  hold(bytes.equals(released), 'the gateway serves the released file, byte by byte');
  const rules = answer.headers.get('content-security-policy');
  hold(rules.startsWith("default-src 'none'; script-src 'sha256-") && rules.endsWith("frame-ancestors 'none'"), rules);
  hold(!rules.includes('unsafe-inline') && !rules.includes("'unsafe-eval'"), rules);
  const plain = await fetch(`${served(setup.plain)}${PATH}`);
  hold(plain.status === 404, `a tunnel without --page serves no page: ${plain.status}`);
}

const CHECKS = [
  ['a gateway serves the released file with strict rules, and only if it is told to', checkServing],
  ['served by the gateway: its first line, a good host, a chat with a receipt, a reload', checkServed],
  ['from disk: another measurement, configuration, root and an open policy are refused', checkRefusals],
  ['from disk on a dark phone: a good host, a chat, its commands, a reload, names for screen readers', checkFromDisk],
  ['from another origin: a good host, a chat', checkFromAnotherOrigin],
  ['a forged page is found out by its digest, and by the released file from disk', checkForgery],
];

try {
  for (const [name, check] of CHECKS) {
    await check();
    console.log(`web: page in Chromium: ${name}`);
  }
  process.exitCode = 0;
} catch (error) {
  console.error(`web: page in Chromium: ${error.stack}`);
  process.exitCode = 1;
}
await browser.close();
process.exit();
