//! `confide connect --encrypted-bodies`: through a proxy that terminates TLS, with requests that only the
//! attested gateway behind it can read.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::Path,
    pin::pin,
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use confide_client::{
    AllowedOrigins, ClientError, ClientLimits, Connector, EncryptedClient, EncryptedForm, Endpoint,
    HttpClient, JudgedKey, Relay, RelayUrl, RemoteEnd, ReplicaSet, ReplicaStatus, ReportJudge,
    VerificationSource, error_chain,
};
use confide_encrypted_body::OHTTP_GATEWAY_PATH;
use confide_evidence::{UnixSeconds, collateral::COLLATERAL_LENGTH_MAX, pem};
use confide_receipt::Nonce;
use confide_verifier::{Policy, RootKind, Scope, weights_to_json};
use serde_json::{Value, json};

use super::{
    environment::find_proxy,
    local_address::{AgentArgs, LocalAddress, VerifiedEnd},
    replicas::{describe_verification, explain_failures, find_described, join_urls, parse_urls},
};
use crate::{
    error::CliError,
    files::{read_file, read_optional_file},
    process,
    refusal::{PeerHints, explain_client_error},
    verify::receipt::body_key::{AcceptedBodyKey, judge_body_key},
};

/// The longest file of root certificates, in bytes.
const ROOTS_BYTES_MAX: u64 = 64 * 1024;
/// What the proxy in between sees, in words.
const VISIBLE: &str = "method, path, query, header fields (API keys among them, with which it can ask for receipts, \
                       stored answers and files), status, sizes and times; requests without a body, and their \
                       answers";

/// What a proxy or relay sees of whole messages that are encrypted, in words.
const VISIBLE_AROUND_MESSAGES: &str =
    "sizes, times, the identifier of the gateway's key, and the address of this machine";

/// The way to a gateway behind a proxy, and the rules by which it is judged.
pub(super) struct EncryptedConnection<'a> {
    /// The addresses of the proxies, each in front of one gateway or of several.
    pub(super) urls: &'a [String],
    pub(super) policy: Policy,
    /// Endorsements in place of the report's.
    pub(super) collateral: Option<&'a Path>,
    /// The root certificates by which TLS of the proxy and the relay is verified; by default those of the system.
    pub(super) tls_ca: Option<&'a Path>,
    /// The address of a relay for the requests.
    pub(super) relay: Option<&'a str>,
    /// Whether bodies only are encrypted, and not whole messages.
    pub(super) has_visible_heads: bool,
    pub(super) listen: SocketAddr,
    pub(super) command: &'a [OsString],
    pub(super) agent: &'a AgentArgs,
}

/// Judges the reports, then serves the loopback address.
pub(super) fn run(
    args: &EncryptedConnection<'_>,
    origins: AllowedOrigins,
    limits: ClientLimits,
) -> Result<ExitCode, CliError> {
    let collateral = read_optional_file(args.collateral, COLLATERAL_LENGTH_MAX as u64)?;
    let replicas = build_replicas(args, collateral, limits)?;
    let replicas = Arc::new(ReplicaSet::new(replicas));
    process::block_on_this_thread(async {
        let mut stop = pin!(process::stop_signal());
        tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
            opened = replicas.open() => {
                opened.map_err(|failures| explain_failures(failures, explain_error))?;
            }
        };
        let verified = |replica: &ReplicaStatus| replica.key_verification.clone();
        let Some((_, fields)) = find_described(&replicas.describe(), verified) else {
            return Err(CliError::new("no report was judged"));
        };
        let (listener, address) = process::listen(args.listen).await?;
        let guarantee = fields["guarantee"].as_str().unwrap_or_default().to_owned();
        let url = join_urls(args.urls);
        let verified = VerifiedEnd { url: &url, guarantee: &guarantee, fields };
        let described = replicas.clone();
        let verification: VerificationSource = Arc::new(move || {
            let verified = |replica: &ReplicaStatus| replica.key_verification.clone();
            describe_verification(&described.describe(), verified)
        });
        let (command, agent) = (args.command, args.agent);
        let local =
            LocalAddress { listener, address, origins, limits, verification, command, agent };
        let maintained = replicas.clone();
        tokio::select! {
            status = local.serve(replicas, verified, stop) => status,
            never = maintained.maintain() => match never {},
        }
    })?
}

/// The replicas of all addresses. They share the limits on requests, and the guarantee of the first
/// report, which the user is shown.
fn build_replicas(
    args: &EncryptedConnection<'_>,
    collateral: Option<Vec<u8>>,
    limits: ClientLimits,
) -> Result<Vec<(String, RemoteEnd)>, CliError> {
    let endpoints = parse_urls(args.urls, "https://inference.example")?;
    if args.relay.is_some() && endpoints.len() > 1 {
        let got = endpoints.len();
        return Err(CliError::new(format!(
            "--relay leads to one gateway: wanted one URL, got {got}"
        ))
        .with_hint("run one `confide connect` for each gateway and its relay"));
    }
    let clients = open_clients(args, &endpoints, limits)?;
    let rules = Arc::new(KeyRules {
        policy: args.policy.clone(),
        collateral,
        relay: args.relay.map(str::to_owned),
        visible: if args.has_visible_heads { VISIBLE } else { VISIBLE_AROUND_MESSAGES },
        guarantee: OnceLock::new(),
    });
    let replicas = args.urls.iter().zip(clients).map(|(url, (reports, form))| {
        let (rules, judged_url) = (rules.clone(), url.clone());
        let judge: ReportJudge =
            Arc::new(move |report, nonce| rules.judge(&judged_url, report, nonce));
        let client = EncryptedClient::new(reports, form, judge, limits.age_max, process::unix_now);
        let client = match args.relay {
            // The relay passes requests on to one gateway only, which is to see no more of this machine
            // than its requests for reports.
            Some(_) => client,
            None => client.with_discovery(),
        };
        (url.clone(), RemoteEnd::Encrypted(Arc::new(client)))
    });
    Ok(replicas.collect())
}

/// The rules by which all reports are judged.
struct KeyRules {
    policy: Policy,
    /// Endorsements in place of a report's.
    collateral: Option<Vec<u8>>,
    relay: Option<String>,
    /// The parts of a request that the proxy in between can read, in words.
    visible: &'static str,
    /// The guarantee of the first report.
    guarantee: OnceLock<&'static str>,
}

impl KeyRules {
    fn judge(&self, url: &str, report: &[u8], nonce: &Nonce) -> Result<JudgedKey, String> {
        let now = process::unix_now();
        let judged = judge_body_key(report, nonce, &self.policy, self.collateral.as_deref(), now);
        let mut judged = judged.map_err(|refusal| refusal.to_string())?;
        let guarantee = describe_guarantee(&judged);
        if *self.guarantee.get_or_init(|| guarantee) != guarantee {
            return Err(format!("the guarantee has changed to `{guarantee}`"));
        }
        judged.key.verification = self.describe(url, &judged, guarantee);
        Ok(judged.key)
    }

    /// Describes what was verified of a gateway behind the proxy.
    fn describe(&self, url: &str, accepted: &AcceptedBodyKey, guarantee: &str) -> Value {
        let mut verdict = accepted.evidence.to_json();
        let mut take = |name: &str| verdict[name].take();
        json!({
            "endpoint": url,
            "encrypted_bodies": accepted.key.key.kem().algorithm(),
            "key_id": accepted.key.key.key_id().to_string(),
            "relay": self.relay,
            "visible_to_proxies": self.visible,
            "simulated": accepted.is_simulated,
            "guarantee": guarantee,
            "scope": accepted.scope.as_str(),
            "root": take("root"),
            "tcb_status": take("tcb_status"),
            "advisories": take("advisories"),
            "checks": take("checks"),
            "config_digest": hex::encode(accepted.config_digest),
            "weights": weights_to_json(accepted.weights.as_ref()),
            "not_after": accepted.key.not_after,
            "not_after_utc": UnixSeconds(accepted.key.not_after).utc().to_string(),
        })
    }
}

/// The client that fetches reports at an address, and the form and the client of requests.
type GatewayClients = (HttpClient, EncryptedForm);

/// The clients of each address. Requests to all addresses share one queue, and reports another.
fn open_clients(
    args: &EncryptedConnection<'_>,
    endpoints: &[Endpoint],
    limits: ClientLimits,
) -> Result<Vec<GatewayClients>, CliError> {
    let roots = read_roots(args.tls_ca)?;
    let open = |endpoint: Endpoint, first: Option<&HttpClient>| {
        let local_proxy = find_proxy(&endpoint)?;
        let roots = roots.iter().cloned();
        let connector = Connector::to_proxy(endpoint, roots, process::unix_now, limits)
            .map_err(|error| CliError::new(error_chain(&error)))?
            .with_proxy(local_proxy);
        Ok::<_, CliError>(match first {
            Some(first) => first.for_replica(connector),
            None => HttpClient::new(connector, limits, process::unix_now),
        })
    };
    let mut clients = Vec::new();
    let mut first: Option<(HttpClient, HttpClient)> = None;
    for endpoint in endpoints {
        let relay = match (args.relay, args.has_visible_heads) {
            (_, true) => None,
            (Some(url), false) => Some(parse_relay(url)?),
            (None, false) => Some(parse_relay(&format!("https://{endpoint}{OHTTP_GATEWAY_PATH}"))?),
        };
        let end = relay.as_ref().map_or(endpoint, |relay| &relay.endpoint);
        let reports = open(endpoint.clone(), first.as_ref().map(|(reports, _)| reports))?;
        let requests = open(end.clone(), first.as_ref().map(|(_, requests)| requests))?;
        first.get_or_insert_with(|| (reports.clone(), requests.clone()));
        let form = match relay {
            Some(url) => EncryptedForm::Messages(Arc::new(Relay::new(requests, url))),
            None => EncryptedForm::Bodies(requests),
        };
        clients.push((reports, form));
    }
    Ok(clients)
}

fn parse_relay(url: &str) -> Result<RelayUrl, CliError> {
    RelayUrl::parse(url).map_err(|error| {
        CliError::new(error).with_hint("for instance https://relay.example/confide")
    })
}

/// The root certificates by which the proxy's TLS is verified: those of a file, or of the system.
fn read_roots(file: Option<&Path>) -> Result<Vec<Vec<u8>>, CliError> {
    let Some(path) = file else {
        let system = rustls_native_certs::load_native_certs();
        return Ok(system.certs.iter().map(|root| root.to_vec()).collect());
    };
    let text = read_file(path, ROOTS_BYTES_MAX)?;
    pem::decode_chain("root certificate of the proxy", &text)
        .map_err(|error| CliError::in_file(path)(error))
}

/// What is known of the end that reads the bodies.
fn describe_guarantee(accepted: &AcceptedBodyKey) -> &'static str {
    let evidence = &accepted.evidence;
    match evidence.root().kind {
        _ if accepted.is_simulated => "none (simulated)",
        RootKind::Custom => "none (custom root)",
        _ if evidence.is_debug() => "none (debug: the host reads the memory)",
        _ if accepted.scope == Scope::Platform => "none (platform only)",
        RootKind::Production => {
            "only the attested gateway and the model servers behind it read bodies"
        }
    }
}

fn explain_error(url: &str, error: &ClientError) -> CliError {
    let hints = PeerHints {
        attester: "",
        network: &|error| {
            match error {
            ClientError::ReportUnavailable { .. } => {
                "the gateway makes one report a second for all clients behind this proxy, and was busy with \
                 those of others: try again, or check that the proxy passes /v1/aci/attestation on"
                    .into()
            }
            _ => "check the proxy's address and its certificate; --tls-ca FILE names another root".into(),
        }
        },
    };
    explain_client_error(url, error, &hints)
}
