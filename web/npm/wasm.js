// Loads the WebAssembly, once.

import init, { checkGuarantee, initSync, judgeReceipt, Verifier } from './confide_web.js';

export { checkGuarantee };

const address = new URL('confide_web_bg.wasm', import.meta.url);
let loading;
let readBytes;

/** Takes the WebAssembly from `read`, which resolves to its bytes, and not from the file next to this one. */
export function setWasmSource(read) {
  readBytes = read;
}

async function load() {
  if (readBytes) {
    await init({ module_or_path: await readBytes() });
  } else if (address.protocol === 'file:') {
    const { readFile } = await import('node:fs/promises');
    initSync({ module: await readFile(address) });
  } else {
    await init({ module_or_path: address });
  }
}

async function waitUntilLoaded() {
  loading ??= load();
  try {
    await loading;
  } catch (error) {
    // The next caller tries again.
    loading = undefined;
    throw error;
  }
}

/** Makes a verifier for a policy. */
export async function loadVerifier(policy, collateral) {
  await waitUntilLoaded();
  return new Verifier(policy, collateral);
}

/** Judges a receipt; resolves to the verdict as JSON. */
export async function loadReceiptVerdict({ policy, report, receipt, request, response }) {
  await waitUntilLoaded();
  return judgeReceipt(policy, report, receipt, request, response);
}
