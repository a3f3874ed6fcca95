//! `confide connect --encrypted-bodies`: through a proxy that terminates TLS, with requests that only the
//! attested gateway behind it can read.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::Path,
    pin::pin,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use confide_client::{
    AllowedOrigins, ClientError, ClientLimits, Connector, EncryptedClient, Endpoint, HttpClient,
    Relay, RelayUrl, ReplicaSet, ReportJudge, VerificationSource, error_chain,
};
use confide_encrypted_body::OHTTP_GATEWAY_PATH;
use confide_evidence::{UnixSeconds, collateral::COLLATERAL_LENGTH_MAX, pem};
use confide_verifier::{Policy, RootKind, Scope, weights_to_json};
use serde_json::{Value, json};

use super::{
    environment::find_proxy,
    local_address::{AgentArgs, LocalAddress, VerifiedEnd},
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
const VISIBLE_AROUND_MESSAGES: &str = "sizes and times, and the address of this machine";

/// The way to a gateway behind a proxy, and the rules by which it is judged.
pub(super) struct EncryptedConnection<'a> {
    /// The address of the proxy.
    pub(super) url: &'a str,
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

/// Judges the report, then serves the loopback address.
pub(super) fn run(
    args: &EncryptedConnection<'_>,
    origins: AllowedOrigins,
    limits: ClientLimits,
) -> Result<ExitCode, CliError> {
    let policy = args.policy.clone();
    let collateral = read_optional_file(args.collateral, COLLATERAL_LENGTH_MAX as u64)?;
    let (http, relay) = open_clients(args, limits)?;
    // The keys that were accepted first and last.
    let accepted: Arc<OnceLock<Arc<AcceptedBodyKey>>> = Arc::default();
    let latest: Arc<Mutex<Option<Arc<AcceptedBodyKey>>>> = Arc::default();
    let (first, last) = (accepted.clone(), latest.clone());
    let judge: ReportJudge = Arc::new(move |report, nonce| {
        let (collateral, now) = (collateral.as_deref(), process::unix_now());
        let judged = judge_body_key(report, nonce, &policy, collateral, now);
        let judged = Arc::new(judged.map_err(|refusal| refusal.to_string())?);
        let guarantee = describe_guarantee(&judged);
        let shown = first.get_or_init(|| judged.clone());
        // The user was shown the guarantee of the first report.
        if describe_guarantee(shown) != guarantee {
            return Err(format!("the guarantee has changed to `{guarantee}`"));
        }
        let key = judged.key.clone();
        *lock(&last) = Some(judged);
        Ok(key)
    });
    let client = EncryptedClient::new(http, judge, limits.age_max, process::unix_now);
    let client = Arc::new(match relay {
        Some(relay) => client.through_relay(relay),
        None => client,
    });
    process::block_on_this_thread(async {
        let mut stop = pin!(process::stop_signal());
        tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
            found = client.find_key() => found.map_err(|error| explain_error(args, &error))?,
        };
        let Some(accepted) = accepted.get() else {
            return Err(CliError::new("the report was not judged"));
        };
        let (listener, address) = process::listen(args.listen).await?;
        let guarantee = describe_guarantee(accepted);
        let relay = args.relay.map(str::to_owned);
        let visible = if args.has_visible_heads { VISIBLE } else { VISIBLE_AROUND_MESSAGES };
        let describe = {
            let url = args.url.to_owned();
            move |accepted: &AcceptedBodyKey| {
                describe_verification(&url, relay.as_deref(), visible, accepted)
            }
        };
        let fields = describe(accepted);
        let verified = VerifiedEnd { url: args.url, guarantee, fields };
        let verification: VerificationSource = Arc::new(move || match &*lock(&latest) {
            Some(accepted) => {
                let more = json!({ "guarantee": describe_guarantee(accepted) });
                process::merge_objects(describe(accepted), more)
            }
            None => Value::Null,
        });
        let (command, agent) = (args.command, args.agent);
        let local =
            LocalAddress { listener, address, origins, limits, verification, command, agent };
        local.serve(Arc::new(ReplicaSet::of_one(client)), verified, stop).await
    })?
}

/// The ways to the gateway's address and to the relay, if there is one.
fn open_clients(
    args: &EncryptedConnection<'_>,
    limits: ClientLimits,
) -> Result<(HttpClient, Option<Relay>), CliError> {
    let endpoint = Endpoint::parse(args.url).map_err(|error| {
        CliError::new(error).with_hint("for instance https://inference.example")
    })?;
    let relay = match (args.relay, args.has_visible_heads) {
        (Some(url), _) => Some(url.to_owned()),
        (None, true) => None,
        (None, false) => Some(format!("https://{endpoint}{OHTTP_GATEWAY_PATH}")),
    };
    let relay = relay.as_deref().map(RelayUrl::parse).transpose().map_err(|error| {
        CliError::new(error).with_hint("for instance https://relay.example/confide")
    })?;
    let roots = read_roots(args.tls_ca)?;
    let open = |endpoint: Endpoint| {
        let local_proxy = find_proxy(&endpoint)?;
        let roots = roots.iter().cloned();
        let connector = Connector::to_proxy(endpoint, roots, process::unix_now, limits)
            .map_err(|error| CliError::new(error_chain(&error)))?
            .with_proxy(local_proxy);
        Ok::<_, CliError>(HttpClient::new(connector, limits, process::unix_now))
    };
    let http = open(endpoint)?;
    let relay = relay.map(|url| Ok::<_, CliError>(Relay::new(open(url.endpoint.clone())?, url)));
    Ok((http, relay.transpose()?))
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

fn explain_error(args: &EncryptedConnection<'_>, error: &ClientError) -> CliError {
    let hints = PeerHints {
        check: |_| {
            "nothing was sent. The gateway needs --receipts --encrypted-bodies, and its configuration and program \
             have to be those of the policy"
                .into()
        },
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
    explain_client_error(args.url, error, &hints)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Describes what was verified of the gateway behind the proxy.
fn describe_verification(
    url: &str,
    relay: Option<&str>,
    visible: &str,
    accepted: &AcceptedBodyKey,
) -> Value {
    let mut verdict = accepted.evidence.to_json();
    let mut take = |name: &str| verdict[name].take();
    json!({
        "endpoint": url,
        "encrypted_bodies": accepted.key.key.kem().algorithm(),
        "relay": relay,
        "visible_to_proxies": visible,
        "simulated": accepted.is_simulated,
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
