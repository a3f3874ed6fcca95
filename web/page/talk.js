// The chat: messages, streamed answers, and the receipt of each.

import { AttestationError } from '../npm/index.js';
import { receiptCommand } from './commands.js';
import { ask, fetchModels, fetchReceipt } from './conversation.js';
import { checkList, commandBox, element, find, saveLink } from './element.js';

/** How near to its end a log counts as read to the end, in pixels. */
const END_PX = 40;

/** The chat with one accepted host. `onRefusal` is called if a later connection to it is refused. */
export class Chat {
  #fetch;
  #options;
  #onRefusal;
  #messages = [];
  #reports = new Map();
  #running = null;

  constructor(fetch, options, onRefusal) {
    this.#fetch = fetch;
    this.#options = options;
    this.#onRefusal = onRefusal;
  }

  /** Empties the log and lists the host's models. */
  async start() {
    find('log').replaceChildren();
    find('models').replaceChildren();
    const model = find('model');
    model.value = this.#options.model ?? '';
    const names = await fetchModels(this.#fetch, this.#options.key).catch(() => []);
    find('models').replaceChildren(...names.map((name) => element('option', { value: name })));
    if (!model.value && names.length > 0) [model.value] = names;
  }

  /** Ends the running answer, and sends nothing more. */
  close() {
    this.#running?.abort();
    this.#fetch.close();
  }

  stop() {
    this.#running?.abort(new DOMException('stopped', 'AbortError'));
  }

  /** Sends a question and shows its answer with its receipt. */
  async send(question, model) {
    if (this.#running) return;
    this.#running = new AbortController();
    find('send').disabled = true;
    find('stop').hidden = false;
    addMessage('You', 'question', question);
    const answer = addMessage(model, 'answer', '');
    answer.item.setAttribute('aria-busy', 'true');
    try {
      await this.#exchange(question, model, answer);
    } finally {
      answer.item.removeAttribute('aria-busy');
      this.#running = null;
      find('send').disabled = false;
      find('stop').hidden = true;
      keepAtEnd(() => {});
    }
  }

  async #exchange(question, model, answer) {
    const messages = [...this.#messages, { role: 'user', content: question }];
    const { key } = this.#options;
    let text = '';
    const onText = (piece) => keepAtEnd(() => {
      text += piece;
      answer.body.textContent = text;
    });
    const { signal } = this.#running;
    let exchange;
    try {
      exchange = await ask(this.#fetch, { model, messages, key, signal, onText });
    } catch (error) {
      answer.item.append(element('p', { class: 'problem' },
        signal.aborted ? 'Stopped. An answer that was cut has no receipt here.' : `No answer: ${error.message}`));
      if (error instanceof AttestationError) this.#onRefusal(error);
      return;
    }
    this.#messages = [...messages, { role: 'assistant', content: text }];
    keepAtEnd(() => answer.item.append(element('p', { class: 'receipt' }, 'Receipt: being fetched …')));
    const receipt = await this.#makeReceipt(exchange);
    keepAtEnd(() => answer.item.lastElementChild.replaceWith(receipt));
  }

  async #makeReceipt(exchange) {
    if (!exchange.receiptId) {
      return element('p', { class: 'receipt', 'data-receipt': 'none' },
        'No receipt: this gateway does not sign answers. The connection itself was verified.');
    }
    try {
      const { policy, key } = this.#options;
      const kept = { policy, key, reports: this.#reports };
      const { files, verdict } = await fetchReceipt(this.#fetch, exchange, kept);
      return showReceipt(files, verdict, policy, this.#fetch.verification.simulated);
    } catch (error) {
      if (error instanceof AttestationError) this.#onRefusal(error);
      return element('p', { class: 'receipt problem', 'data-receipt': 'missing' },
        `✕ No receipt for this answer, although it has a number: ${error.message}`);
    }
  }
}

/** Adds a message to the log. */
function addMessage(author, kind, text) {
  const body = element('div', { class: 'text' }, text);
  const item = element('article', { class: `message ${kind}`, 'aria-label': author },
    element('p', { class: 'author' }, author), body);
  find('log').append(item);
  find('log').scrollTop = find('log').scrollHeight;
  return { item, body };
}

/** Changes the log, and follows its end if the reader was there. */
function keepAtEnd(change) {
  const log = find('log');
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < END_PX;
  change();
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function showReceipt(files, verdict, policy, isSimulated) {
  const isAccepted = verdict.outcome === 'accepted';
  const scope = verdict.scope === 'platform' ? ' (platform only: your policy pins no configuration)' : '';
  const label = scope + (isSimulated ? ' (SIMULATED)' : '');
  const summary = isAccepted
    ? `✓ Receipt: signed by the attested gateway for exactly this request and answer${label}`
    : `✕ Receipt refused (${verdict.refused}): ${verdict.reason}`;
  const links = [
    ['receipt.json', files.receipt], ['report.json', files.report], ['request.json', files.request],
    ['answer', files.response], ['policy.toml', policy],
  ].flatMap(([name, content]) => [saveLink(name, content), ' ']);
  const decoded = new TextDecoder().decode(files.receipt);
  return element('details', {
    class: `receipt ${isAccepted ? 'accepted' : 'refused'}`, 'data-receipt': verdict.outcome, open: !isAccepted,
  },
    element('summary', {}, summary),
    checkList(verdict.checks),
    element('p', {}, 'Its time is the gateway’s clock. Keep the files to check it later: ', ...links),
    commandBox('Copy the command that re-checks this receipt', receiptCommand()),
    element('details', {}, element('summary', {}, 'The receipt'),
      element('pre', { tabindex: '0', role: 'group', 'aria-label': 'Receipt' }, indentJson(decoded))));
}

function indentJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
