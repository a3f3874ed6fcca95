// Elements of the page. Text is always set as text, so nothing that a host sends becomes markup.

/** Makes an element with attributes (a function is a listener of its event) and children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The element of the page with this id. */
export function find(id) {
  return document.getElementById(id);
}

/** A button that copies `text`, and says so. */
export function copyButton(label, text) {
  const status = element('span', { role: 'status', class: 'copied' });
  const copy = async () => {
    status.textContent = (await copyText(text)) ? 'Copied' : 'Not copied: select the text';
  };
  return element('span', { class: 'copy' }, element('button', { type: 'button', click: copy }, label), ' ', status);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages from an insecure origin have no clipboard.
    const area = element('textarea', { 'aria-hidden': 'true', class: 'offscreen' });
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand('copy');
    area.remove();
    return isCopied;
  }
}

/** A link that saves bytes or text under a name. */
export function saveLink(name, content) {
  const save = (event) => {
    const address = URL.createObjectURL(new Blob([content], { type: 'application/octet-stream' }));
    event.currentTarget.href = address;
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  return element('a', { href: '#', download: name, click: save }, name);
}

/** A command in a box, with a button that copies it. */
export function commandBox(label, command) {
  const text = element('pre', { class: 'command', tabindex: '0', role: 'group', 'aria-label': 'Command' }, command);
  return element('div', { class: 'command-box' }, text, copyButton(label, command));
}

/** An outcome as a mark and a word: neither colour nor mark alone says it. */
export function outcomeLabel(outcome) {
  const [mark, word] = OUTCOMES[outcome] ?? ['?', String(outcome)];
  const shown = element('span', { class: 'mark', 'aria-hidden': 'true' }, mark);
  return element('span', { class: `outcome ${outcome in OUTCOMES ? outcome : ''}` }, shown, ` ${word}`);
}

const OUTCOMES = { passed: ['✓', 'passed'], failed: ['✕', 'failed'], not_evaluated: ['○', 'not evaluated'] };

/** Checks as a list: name, outcome and detail of each. */
export function checkList(checks) {
  const lines = checks.map(({ name, outcome, detail }) => element('li', {},
    element('span', { class: 'check-name' }, name), ' ', outcomeLabel(outcome),
    element('span', { class: 'detail' }, detail ?? '')));
  return element('ul', { class: 'checks' }, ...lines);
}
