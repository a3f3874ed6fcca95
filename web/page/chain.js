// The chain from the hardware to the workload: which checks belong to which step, and what became of each step.

/**
 * The steps in their order. `deciding` are the checks without which a step has not passed; the checks of a TDX, an
 * SGX and an SEV-SNP machine have different names.
 */
export const STEPS = [
  {
    id: 'hardware',
    title: 'Hardware root',
    about: 'Whether the evidence is signed under a root that your policy trusts.',
    deciding: ['root', 'quote_signature', 'report_signature'],
    checks: [
      'evidence', 'collateral', 'quote_format', 'report_format', 'root_crl', 'pck_crl', 'pck_chain', 'chain',
      'revocation', 'product', 'signing_key', 'chip_id', 'platform', 'chip', 'qe_report',
    ],
  },
  {
    id: 'tcb',
    title: 'TCB',
    about: 'Whether firmware and microcode below the program are as new as your policy demands.',
    deciding: ['tcb_status', 'tcb_version', 'tcb_minimum'],
    checks: [
      'tcb_signer', 'tcb_info', 'qe_identity', 'qe_enclave', 'tdx_module', 'tcb_level', 'advisories',
      'evaluation_number',
    ],
  },
  {
    id: 'measurement',
    title: 'Measurement',
    about: 'Whether the program that was started is one that your policy names, and its memory is closed to the host.',
    deciding: ['measurements', 'debug'],
    checks: ['attributes', 'guest_policy', 'vmpl'],
    open: 'The source that it was built from is not evaluated: evidence names bytes. The author of the policy has to '
      + 'have built the program from its source, or to trust somebody who has.',
  },
  {
    id: 'binding',
    title: 'Binding',
    about: 'Whether the evidence belongs to this very connection.',
    deciding: ['report_data'],
    checks: ['binding', 'channel_binding', 'claims', 'key_validity', 'evidence_age'],
  },
  {
    id: 'gpu',
    title: 'GPU',
    about: 'Whether the accelerator is genuine and protects its memory.',
    deciding: ['gpu'],
    checks: [],
    prefix: 'gpu_',
  },
  {
    id: 'weights',
    title: 'Weights',
    about: 'Whether the files of the model are those that your policy names.',
    deciding: ['weights'],
    checks: [],
  },
  {
    id: 'workload',
    title: 'Workload',
    about: 'Whether the configuration is one that your policy pins: where prompts go, and what may be asked.',
    deciding: ['config_digest'],
    checks: ['scope', 'guarantee'],
  },
];

function belongsTo(step, name) {
  return step.deciding.includes(name) || step.checks.includes(name)
    || (step.prefix !== undefined && name.startsWith(step.prefix));
}

/** The outcome of a step: it has passed only if all deciding checks were evaluated and passed, and no check failed. */
export function stepOutcome(step, checks) {
  if (checks.some(({ outcome }) => outcome === 'failed')) return 'failed';
  const deciding = checks.filter(({ name }) => step.deciding.includes(name));
  const isPassed = deciding.length > 0 && deciding.every(({ outcome }) => outcome === 'passed');
  return isPassed ? 'passed' : 'not_evaluated';
}

/**
 * Sorts checks into the steps. A check that no step knows is in a step of its own at the end, so that none is lost.
 */
export function buildChain(checks) {
  const chain = STEPS.map((step) => {
    const own = checks.filter(({ name }) => belongsTo(step, name));
    return { ...step, checks: own, outcome: stepOutcome(step, own) };
  });
  const rest = checks.filter(({ name }) => !STEPS.some((step) => belongsTo(step, name)));
  if (rest.length > 0) {
    const step = { id: 'other', title: 'Other checks', about: '', deciding: rest.map(({ name }) => name) };
    chain.push({ ...step, checks: rest, outcome: stepOutcome(step, rest) });
  }
  return chain;
}

/** The checks of a refusal; where none ran, the one that failed. */
export function checksOfRefusal({ check, message, verification }) {
  return verification?.checks ?? [{ name: check, outcome: 'failed', detail: message }];
}
