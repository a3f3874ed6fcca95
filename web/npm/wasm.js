// Loads the WebAssembly, once.

import init, { initSync, Verifier } from './confide_web.js';

const address = new URL('confide_web_bg.wasm', import.meta.url);
let loading;

async function load() {
  if (address.protocol === 'file:') {
    const { readFile } = await import('node:fs/promises');
    initSync({ module: await readFile(address) });
  } else {
    await init({ module_or_path: address });
  }
}

/** Makes a verifier for a policy. */
export async function loadVerifier(policy, collateral) {
  loading ??= load();
  try {
    await loading;
  } catch (error) {
    // The next caller tries again.
    loading = undefined;
    throw error;
  }
  return new Verifier(policy, collateral);
}
