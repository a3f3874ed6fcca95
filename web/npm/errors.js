// The errors of this package, and how they are made from what the WebAssembly reports.

/** The server's evidence was judged and not accepted. Nothing was sent to it. */
export class AttestationError extends Error {
  constructor(server, report) {
    super(`${server} is not accepted: ${report.message}\nhint: ${report.hint}`);
    this.name = 'AttestationError';
    this.server = server;
    this.check = report.check;
    this.hint = report.hint;
    this.verification = report.verification;
  }
}

/** The server could not be reached or judged, or the connection broke. A second try may help. */
export class ConnectionError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = 'ConnectionError';
  }
}

/** Makes an exception of what a call into the WebAssembly threw. */
export function toError(server, thrown) {
  if (typeof thrown !== 'string') return thrown;
  const report = JSON.parse(thrown);
  switch (report.kind) {
    case 'attestation':
      return new AttestationError(server, report);
    case 'usage':
      return new TypeError(`request or option is not usable: ${report.message}`);
    default:
      return new ConnectionError(`${server}: ${report.message}`);
  }
}
