/** `fetch` over attested TLS that ends inside the page or the Node process. */

export interface FetchOptions {
  /** The attested server, `https://HOST[:PORT]`. Its name is no reason to trust it; its evidence is. */
  server: string;
  /** The policy in TOML (docs/policy.md). */
  policy: string;
  /** The WebSocket tunnel that reaches the server, `ws://HOST:PORT` or `wss://HOST`. A page needs one. */
  tunnel?: string;
  /** Collateral as JSON, used instead of what the server staples. */
  collateral?: string | Uint8Array;
  /** How the server binds its evidence: by default `session` if the policy demands it, else `key`. */
  binding?: 'key' | 'session';
  /** The one version of session binding to offer, which implies it: by default all, and the server chooses. */
  sessionVersion?: 1 | 2 | 3;
  /** Limits that differ from the default. */
  limits?: Partial<Limits>;
}

/** Limits; those in milliseconds end in `Ms`. */
export interface Limits {
  /** The socket, or the tunnel with its upgrade: 5,000. */
  dialMs: number;
  /** Handshake, evidence and appraisal together: 10,000. */
  channelMs: number;
  /** Connections, and so requests that run at once: 6. */
  connections: number;
  /** Requests that wait for a connection: 256. */
  waiting: number;
  /** The wait for a connection: 30,000. */
  queueMs: number;
  /** From sending a request to the head of its answer: 600,000. */
  responseStartMs: number;
  /** Between two pieces of an answer: 300,000. */
  responsePauseMs: number;
  /** For which an idle connection is kept: 240,000. */
  idleMs: number;
  /** The age of evidence at which the next request gets a new connection: 900,000. */
  evidenceAgeMs: number;
  /** Bytes of a request's body: 32 MiB. */
  requestBytes: number;
  /** Bytes that a WebSocket has received and the page has not read: 64 MiB. */
  unreadBytes: number;
}

/** One check of an appraisal. */
export interface Check {
  name: string;
  outcome: string;
  [member: string]: unknown;
}

/** What was verified, with the members of `confide connect`'s ready line. */
export interface Verification {
  endpoint: string;
  via: string | null;
  /** Who is protected from whom, computed from what was checked (docs/gateway.md, "`confide connect`"). */
  guarantee: string;
  /** Whether the root says of itself that it is simulated. */
  simulated: boolean;
  scope: string;
  root: unknown;
  tcb_status: string | null;
  advisories: string[];
  config_digest: string | null;
  weights: unknown;
  claimed_guarantee: string | null;
  /** Unix seconds after which the claims or endorsements have expired. */
  not_after: number;
  /** The same in UTC. */
  not_after_utc: string;
  checks: Check[];
}

/** A `fetch` that sends to the attested server only. Redirects are not followed. */
export interface AttestedFetch {
  (input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** What was verified of the newest connection. */
  readonly verification: Verification;
  /** Closes idle connections now, and the others when their answers have been read; further requests fail. */
  close(): void;
}

/** The server's evidence was judged and not accepted. Nothing was sent to it. */
export class AttestationError extends Error {
  readonly name: 'AttestationError';
  readonly server: string;
  /** The check that failed, as policies name it. */
  readonly check: string;
  readonly hint: string;
  /** Every check with its outcome, if checks ran. */
  readonly verification: { checks: Check[]; [member: string]: unknown } | null;
}

/** The server could not be reached or judged, or the connection broke. */
export class ConnectionError extends Error {
  readonly name: 'ConnectionError';
}

/** The documents of one answer, byte by byte as they came. */
export interface ReceiptFiles {
  /** The policy in TOML; its configuration and weights are compared with those in the receipt. */
  policy: string;
  /** The gateway's report, of `/v1/aci/attestation` without a nonce. */
  report: Uint8Array;
  /** The receipt, of `/v1/aci/receipts/ID`. */
  receipt: Uint8Array;
  /** The body of the request. */
  request: Uint8Array;
  /** The body of the answer, with the lines that frame the events of a stream. */
  response: Uint8Array;
}

/** The verdict on a receipt, with the names of `confide verify receipt --json`. */
export interface ReceiptVerdict {
  /** `error` if the documents do not suffice for a judgement. */
  outcome: 'accepted' | 'rejected' | 'error';
  /** What an acceptance covers: `platform` if the policy pins no program or no configuration. */
  scope: 'workload' | 'platform';
  /** The name of the refusal (docs/receipts.md, "Verification"). */
  refused: string | null;
  reason: string | null;
  checks: Check[];
  /** Whether the receipt says that the answer was cut. */
  answer_cut: boolean;
  /** The receipt without its signature, once that was found valid. */
  receipt: Record<string, unknown> | null;
  /** The verdict on the evidence of the report. */
  evidence: Record<string, unknown> | null;
}

/**
 * Judges the receipt of an answer, now.
 *
 * @throws {TypeError} for a policy or a document that cannot be used
 */
export function judgeReceipt(files: ReceiptFiles): Promise<ReceiptVerdict>;

/**
 * Takes the WebAssembly from `read`, which resolves to its bytes, and not from the file next to the package's. To be
 * called before anything else.
 */
export function setWasmSource(read: () => Promise<ArrayBuffer | Uint8Array>): void;

/**
 * Connects to the server, verifies it, and resolves to a `fetch` for it.
 *
 * @throws {AttestationError} if the evidence is not accepted
 * @throws {ConnectionError} if the server cannot be reached
 * @throws {TypeError} for an option that cannot be used
 */
export function createFetch(options: FetchOptions): Promise<AttestedFetch>;
