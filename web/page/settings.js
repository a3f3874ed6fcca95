// What the visitor has entered: from the address's fragment, and kept in the browser if the visitor wants.

const NAME = 'confide-page';
const MEMBERS = ['server', 'tunnel', 'policy', 'binding', 'model'];
export const POLICY_BYTES_MAX = 256 * 1024;

/** The path at which a gateway serves this page, next to its tunnel. */
const SERVED_PATH = '/.well-known/confide/page';

function readMembers(source) {
  const pairs = MEMBERS.map((name) => [name, source[name]]);
  return Object.fromEntries(pairs.filter(([, value]) => typeof value === 'string'));
}

/** What was kept; null without it. A page in a sandbox has no storage. */
export function loadSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME));
    return kept && readMembers(kept);
  } catch {
    return null;
  }
}

/** Keeps the settings, or forgets them; false where the browser keeps nothing. */
export function storeSettings(settings) {
  try {
    if (settings) localStorage.setItem(NAME, JSON.stringify(readMembers(settings)));
    else localStorage.removeItem(NAME);
    return true;
  } catch {
    return false;
  }
}

/**
 * What the address suggests: host, tunnel, binding and model in the fragment, and the tunnel next to which the page is
 * served. A policy is never taken from an address.
 */
export function readAddress({ hash, host, pathname, protocol }) {
  const { policy, ...suggested } = readMembers(Object.fromEntries(new URLSearchParams(hash.slice(1))));
  if (pathname === SERVED_PATH && !suggested.tunnel) {
    suggested.tunnel = `${protocol === 'https:' ? 'wss' : 'ws'}://${host}`;
  }
  return suggested;
}

/** Whether the page came from the host that it judges, or from its tunnel. */
export function isFromJudgedHost({ protocol, host, hostname }, { server, tunnel }) {
  if (!protocol.startsWith('http')) return false;
  const parse = (text) => {
    try {
      return new URL(text);
    } catch {
      return null;
    }
  };
  return parse(tunnel)?.host === host || parse(server)?.hostname === hostname;
}
