// The page: verifies a host by the visitor's policy, shows the chain, and lets the visitor chat with the host.

import { AttestationError, createFetch, setWasmSource } from '../npm/index.js';
import { element, find } from './element.js';
import {
  POLICY_BYTES_MAX, isFromJudgedHost, loadSettings, readAddress, storeSettings,
} from './settings.js';
import { Chat } from './talk.js';
import { showAccepted, showRefused, showUnjudged } from './verdict.js';

/** The WebAssembly lies in the page itself, compressed and in base64. */
setWasmSource(async () => {
  const bytes = Uint8Array.from(atob(find('wasm').textContent), (character) => character.charCodeAt(0));
  const expanded = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(expanded).arrayBuffer();
});

let chat = null;
/** Counts the checks, so that a late one does not replace a newer one. */
let turn = 0;

function readForm() {
  const value = (id) => find(id).value.trim();
  const [server, tunnel, key, binding] = ['server', 'tunnel', 'key', 'binding'].map(value);
  return { server, tunnel, key, binding, policy: find('policy').value };
}

function fillForm(settings) {
  for (const name of ['server', 'tunnel', 'policy', 'binding']) {
    if (settings[name]) find(name).value = settings[name];
  }
}

/** Says where this page came from, and what that means for what it shows. */
function describeOrigin() {
  const text = find('origin-text');
  if (location.protocol === 'file:') {
    text.textContent = 'This page was opened from disk: it is as good as its file, so compare the file’s SHA-256 with '
      + 'the released one.';
    find('origin-link').textContent = 'How to compare it';
  } else if (!isFromJudgedHost(location, readForm())) {
    text.textContent = `This page came from ${location.host}. If that is, or obeys, the host that it checks, it proves `
      + 'nothing: such a host can send another page.';
  } else {
    text.textContent = 'This page was sent by the host that it checks, so it proves nothing: such a host can send '
      + 'another page.';
  }
}

function showResult(parts) {
  const result = find('result');
  result.replaceChildren(...parts);
  result.hidden = false;
}

function endChat() {
  chat?.close();
  chat = null;
  find('chat').hidden = true;
}

function showRefusal(error, options) {
  endChat();
  showResult(showRefused(error, options));
}

/** Verifies the host. */
async function verify(options) {
  turn += 1;
  const mine = turn;
  endChat();
  describeOrigin();
  find('result').hidden = true;
  find('verify').disabled = true;
  find('progress').textContent = 'Verifying …';
  const { server, tunnel, policy } = options;
  const binding = options.binding || undefined;
  let outcome;
  try {
    const fetch = await createFetch({ server, tunnel, policy, binding });
    if (mine !== turn) {
      fetch.close();
      return;
    }
    showResult(showAccepted(fetch.verification, options));
    outcome = fetch.verification.simulated ? 'Accepted (SIMULATED)' : 'Accepted';
    const started = new Chat(fetch, options, (error) => showRefusal(error, options));
    chat = started;
    find('chat').hidden = false;
    await started.start();
  } catch (error) {
    if (mine !== turn) return;
    const isRefused = error instanceof AttestationError;
    outcome = isRefused ? 'Refused' : 'Not judged';
    showResult(isRefused ? showRefused(error, options) : showUnjudged(error));
  } finally {
    if (mine === turn) {
      find('verify').disabled = false;
      find('progress').textContent = outcome ?? '';
    }
  }
}

async function loadPolicyFile({ target }) {
  const [file] = target.files;
  if (!file) return;
  if (file.size > POLICY_BYTES_MAX) {
    find('progress').textContent = `The file has ${file.size} bytes, wanted at most ${POLICY_BYTES_MAX}`;
    return;
  }
  find('policy').value = await file.text();
}

function remember(options) {
  const isWanted = find('remember').checked;
  if (!storeSettings(isWanted ? options : null) && isWanted) {
    find('remember').checked = false;
    find('remember').parentElement.append(element('span', { role: 'status' }, ' This browser keeps nothing here.'));
  }
}

find('target').addEventListener('submit', (event) => {
  event.preventDefault();
  const options = readForm();
  remember(options);
  verify(options).then(() => find('result').focus());
});
find('remember').addEventListener('change', () => { if (!find('remember').checked) storeSettings(null); });
find('policy-file').addEventListener('change', loadPolicyFile);
find('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  const question = find('question').value.trim();
  if (!question || !chat || find('send').disabled) return;
  find('question').value = '';
  chat.send(question, find('model').value.trim());
});
find('question').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  find('ask').requestSubmit();
});
find('stop').addEventListener('click', () => chat?.stop());

const kept = loadSettings();
const suggested = readAddress(location);
fillForm({ ...kept, ...suggested });
find('remember').checked = kept !== null;
describeOrigin();
// What was kept is verified again at once, unless the address suggests another host.
const isSame = (name) => !suggested[name] || suggested[name] === kept[name];
if (kept?.policy && kept.server && kept.tunnel && isSame('server') && isSame('tunnel')) {
  verify({ ...readForm(), model: suggested.model });
}
