// The commands with which others check again what this page has shown.

/** A word of a POSIX shell. */
export function quoteWord(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Verifies the host by the policy in policy.toml, and ends with status 0 if it is accepted. */
export function connectCommand({ server, binding }, more = '') {
  const flags = binding ? ` --binding ${quoteWord(binding)}` : '';
  return `confide connect ${quoteWord(server)} --policy policy.toml${flags}${more} -- true`;
}

/** The same through the tunnel; the program takes `ws://` only. */
export function tunnelCommand(options) {
  const { tunnel } = options;
  return tunnel.startsWith('ws://') ? connectCommand(options, ` --via ${quoteWord(tunnel)}`) : null;
}

/** Judges the receipt of an answer, whose files were saved. */
export function receiptCommand() {
  return 'confide verify receipt receipt.json --report report.json --policy policy.toml \\\n'
    + '  --request request.json --response answer';
}
