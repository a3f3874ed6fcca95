// Shows what was verified of a host, step by step.

import { buildChain, checksOfRefusal } from './chain.js';
import { connectCommand, tunnelCommand } from './commands.js';
import { checkList, commandBox, element, outcomeLabel, saveLink } from './element.js';
import { isFromJudgedHost } from './settings.js';

/** The verdict on an accepted host. */
export function showAccepted(verification, options) {
  const isWorkload = verification.scope === 'workload';
  const title = isWorkload ? 'Accepted' : 'Accepted, platform only';
  const text = isWorkload
    ? 'Machine, program and configuration are as your policy demands.'
    : 'The machine is genuine, but your policy leaves open which program runs on it.';
  return [
    verification.simulated ? simulatedBanner() : null,
    verification.simulated ? heading('trial', `${title} (SIMULATED)`, text) : heading('accepted', title, text),
    caution(options),
    factList(verification),
    chainList(verification.checks, describeRoot(verification)),
    ...recheck(options),
  ].filter(Boolean);
}

/** The verdict on a refused host. */
export function showRefused(error, options) {
  const problem = element('div', { class: 'problem' },
    element('p', {}, 'Check that failed: ', element('code', {}, error.check)),
    ...error.message.split('\n').map((line) => element('p', {}, line)));
  return [
    error.verification?.simulated ? simulatedBanner() : null,
    heading('refused', 'Refused', 'This host does not satisfy your policy. No message of yours was sent to it.'),
    problem,
    caution(options),
    chainList(checksOfRefusal(error)),
    ...recheck(options),
  ].filter(Boolean);
}

/** A host that could not be judged: unreachable, or an option that cannot be used. */
export function showUnjudged(error) {
  const text = 'No evidence was judged, so nothing is known about this host. No message of yours was sent to it.';
  const problem = element('div', { class: 'problem' }, element('p', {}, error.message));
  return [heading('unjudged', 'Not judged', text), problem];
}

function heading(kind, title, text) {
  const mark = { accepted: '✓', trial: '✓', refused: '✕', unjudged: '○' }[kind];
  return element('div', { class: `verdict ${kind}` },
    element('h2', { id: 'verdict' }, element('span', { class: 'mark', 'aria-hidden': 'true' }, mark), ` ${title}`),
    element('p', {}, text));
}

function simulatedBanner() {
  return element('p', { class: 'simulated' }, element('strong', {}, 'SIMULATED. '),
    'The root says of itself that software made this evidence. It protects nothing: use it for trials only.');
}

/** What an accepted root is, if it is not a vendor's; null otherwise. */
function describeRoot({ simulated, guarantee }) {
  if (simulated) return 'SIMULATED: software has signed this evidence, under a root of its own.';
  if (guarantee === 'none (custom root)') return 'This root is no vendor’s: your policy trusts it by its digest.';
  return null;
}

/** Where the page came from the host itself, the verdict says what that means. */
function caution(options) {
  if (!isFromJudgedHost(location, options)) return null;
  return element('p', { class: 'caution' },
    'This page came from the host that it judged, so this verdict is only as honest as that host. ',
    element('a', { href: '#own-copy' }, 'Judge it with your own copy'), '.');
}

function factList(verification) {
  const { endpoint, guarantee, root, config_digest: digest, not_after: until } = verification;
  const rootText = typeof root === 'string' ? root : [root?.kind, root?.name, root?.sha256].filter(Boolean).join(', ');
  const facts = [
    ['Host', endpoint],
    ['Guarantee', guarantee],
    ['Root', rootText],
    ['TCB status', verification.tcb_status],
    ['Configuration', digest],
    ['Valid until', new Date(until * 1000).toISOString().replace('.000Z', 'Z')],
  ];
  const shown = facts.filter(([, value]) => value);
  const lines = shown.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  return element('dl', { class: 'facts' }, ...lines);
}

function chainList(checks, rootNote = null) {
  const steps = buildChain(checks).map((step) => {
    const evaluated = step.checks.filter(({ outcome }) => outcome !== 'not_evaluated').length;
    const count = `${evaluated} of ${step.checks.length} checks evaluated`;
    const details = element('details', { open: step.outcome === 'failed' },
      element('summary', {}, count), checkList(step.checks));
    return element('li', { class: `step ${step.outcome}`, 'data-step': step.id, 'data-outcome': step.outcome },
      element('h4', {}, element('span', { class: 'step-title' }, step.title), ' ', outcomeLabel(step.outcome)),
      element('p', {}, step.about),
      step.id === 'hardware' && rootNote ? element('p', { class: 'root-note' }, rootNote) : null,
      step.open ? element('p', { class: 'open' }, outcomeLabel('not_evaluated'), ` ${step.open}`) : null,
      step.checks.length > 0 ? details : null);
  });
  return element('div', {}, element('h3', {}, 'The chain'), element('ol', { class: 'chain' }, ...steps));
}

function recheck(options) {
  const tunnel = tunnelCommand(options);
  return [
    element('h3', {}, 'Check it again without this page'),
    element('p', {}, 'Save your policy as ', saveLink('policy.toml', options.policy),
      ', and run this command: status 0 means accepted, 1 refused.'),
    commandBox('Copy the command that re-checks this', connectCommand(options)),
    tunnel ? element('details', {}, element('summary', {}, 'If you reach the host through the tunnel only'),
      commandBox('Copy the command for the tunnel', tunnel)) : null,
  ];
}
