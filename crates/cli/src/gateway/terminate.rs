//! A listener that terminates TLS and proxies HTTP to model servers.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use confide_client::error_chain;
use confide_evidence::{Attest, weights_claim::NOT_MEASURED};
use confide_gateway::{
    AccessLog, AccessLogThread, AnswerShape, AuthorizationHook, Authorizer, DEFAULT_GROUP, Gateway,
    GatewayConfiguration, GatewayError, GatewayLimits, GatewayOptions, KeySet, ModelServer,
    ReceiptBook, Route, Telemetry, Upstream, UpstreamKey,
};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::shape::{describe_price, parse_answer_shape};
use crate::{
    binding::BindingName,
    error::CliError,
    files::{read_file, write_file},
    policy, process,
    server_flags::{AttestedServerArgs, certificate_names},
};

/// The longest wait for an answer of the upstream, which is on the same machine or network.
const MODELS_DEADLINE: Duration = Duration::from_secs(3);
/// Default of `--upstream-wait-s`, in seconds. A gateway and its model server are often started by
/// one script; a small model loads within this time, so that their order does not matter.
const UPSTREAM_WAIT_S: u64 = 10;
/// Default of `--upstream-check-s`, in seconds: a model server that is replaced while nobody
/// connects is noticed within this time.
const UPSTREAM_CHECK_S: u64 = 10;
/// Pause between two tries: short compared with the loading of a model.
const UPSTREAM_RETRY: Duration = Duration::from_millis(200);
/// The longest file of a certificate with its chain, or of a key, in bytes.
const PEM_BYTES_MAX: u64 = 64 * 1024;

/// The settings that flags and the file share; in the file, `_` stands for `-`.
#[derive(clap::Args, Debug)]
pub(crate) struct TerminateArgs {
    /// Proxy this path too: PATH, or METHOD[,METHOD] PATH; a path alone allows GET, HEAD and POST,
    /// and the method WEBSOCKET allows WebSockets.
    /// `*` stands for one segment, `**` at the end for the rest. May be given several times
    #[arg(long, value_name = "ROUTE", conflicts_with = "dangerous_all_routes")]
    route: Vec<String>,
    /// Proxy every path and method: clients reach metrics and administration of the model server,
    /// and can change what it serves
    #[arg(long)]
    dangerous_all_routes: bool,
    /// Seconds to wait for a model server that does not answer yet, before starting without its model in
    /// the configuration digest
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_WAIT_S,
          value_parser = clap::value_parser!(u64).range(..=3600))]
    upstream_wait_s: u64,
    /// Seconds between checks that the model server still serves the model in the configuration digest.
    /// Each new connection to it is checked as well
    #[arg(long, value_name = "N", default_value_t = UPSTREAM_CHECK_S,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    upstream_check_s: u64,
    /// How evidence is bound to connections
    #[arg(long, value_enum, default_value_t = BindingName::Key)]
    binding: BindingName,
    #[command(flatten)]
    server: AttestedServerArgs,
    /// Use this certificate, PEM, with the chain to its root; needs `--binding none` and --certificate-key.
    /// SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "certificate_key", conflicts_with = "name")]
    certificate: Option<PathBuf>,
    /// The private key of --certificate, PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    certificate_key: Option<PathBuf>,
    /// Write the certificate as PEM, for clients of `--binding none`
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    certificate_out: Option<PathBuf>,
    /// Give clients session tickets, with which they resume sessions without the certificate; needs
    /// `--binding none`, since a resumed session would show no evidence
    #[arg(long)]
    session_tickets: bool,
    /// Demand evidence of clients that satisfies this policy, TOML; needs `--binding session`. SIGHUP reads it
    /// again
    #[arg(long, value_name = "FILE")]
    client_policy: Option<PathBuf>,
    /// Sign a receipt for each answer of a model, over the bytes of request and answer, and keep it for an hour.
    /// Clients fetch it at /v1/aci/receipts/ID. Needs evidence
    #[arg(long)]
    receipts: bool,
    /// Hide sizes and times of answers: of a stream, BYTES bytes leave every MS milliseconds, and the number of
    /// such slots is a multiple of SLOTS; JSON is filled up to a multiple of SLOTS x BYTES. `confide gateway
    /// shape` prints what it costs
    #[arg(long, value_name = "BYTES/MS/SLOTS", value_parser = parse_answer_shape)]
    answer_shape: Option<AnswerShape>,
    /// Let clients encrypt request bodies to a key of the keyset that evidence covers (EHBP), and encrypt the
    /// answers, so that a proxy in front that terminates TLS cannot read them. Needs --receipts
    #[arg(long, requires = "receipts")]
    encrypted_bodies: bool,
    /// Write one line of JSON for each request: time, method, the fixed parts of its path, status. The line
    /// contains no query, field, body or identifier. `-` is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    authorization: AuthorizationArgs,
}

/// The API keys that a gateway demands. A reload reads the key file again, and changes nothing else.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizationArgs {
    /// Serve only clients with an API key of this TOML file, within the key's limits; SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// Ask this service about API keys, http:// on loopback
    #[arg(long, value_name = "URL", conflicts_with = "api_keys")]
    authorization_hook: Option<String>,
    /// Present the key in this file to the model servers, in place of the clients' keys; needs --api-keys or
    /// --authorization-hook
    #[arg(long, value_name = "FILE")]
    upstream_key_file: Option<PathBuf>,
    /// Append what each API key has used to this file, one line of JSON a minute for each key and model; needs
    /// --api-keys or --authorization-hook
    #[arg(long, value_name = "FILE")]
    usage_file: Option<PathBuf>,
}

impl AuthorizationArgs {
    /// The file to which usage is appended.
    pub(crate) fn usage_file(&self) -> Option<&Path> {
        self.usage_file.as_deref()
    }

    /// Makes the authorizer; `None` if no keys are demanded.
    fn open_authorizer(&self) -> Result<Option<Arc<Authorizer>>, CliError> {
        let mut authorizer = match (&self.api_keys, &self.authorization_hook) {
            (Some(path), _) => Authorizer::with_keys(read_keys(path)?, process::unix_now),
            (None, Some(url)) => {
                let hook = AuthorizationHook::new(url).map_err(CliError::new)?;
                Authorizer::with_hook(hook, process::unix_now)
            }
            (None, None) if self.upstream_key_file.is_some() || self.usage_file.is_some() => {
                let text =
                    "an upstream key and a usage file are for a gateway that demands API keys";
                return Err(CliError::new(text).with_hint("add --api-keys or --authorization-hook"));
            }
            (None, None) => return Ok(None),
        };
        if let Some(path) = &self.upstream_key_file {
            let key = UpstreamKey::read(path).map_err(CliError::new)?;
            authorizer = authorizer.with_upstream_key(key);
        }
        if let Some(path) = &self.usage_file {
            authorizer = authorizer.with_usage_file(path).map_err(CliError::new)?;
        }
        Ok(Some(Arc::new(authorizer)))
    }
}

fn read_keys(path: &Path) -> Result<KeySet, CliError> {
    KeySet::read(path).map_err(|error| {
        CliError::new(error)
            .with_hint("`confide gateway key new --name NAME` makes a key and its table")
    })
}

/// A checked listener of this kind.
#[derive(Debug)]
pub(crate) struct TerminateConfig {
    args: TerminateArgs,
    /// Without the models, which are asked for when the gateway is made.
    configuration: GatewayConfiguration,
    limits: GatewayLimits,
}

/// A gateway, the end of its access log, and its API keys. Nothing of it is in effect yet.
pub(crate) struct PreparedGateway {
    pub(crate) gateway: Gateway,
    pub(crate) log_end: Option<AccessLogThread>,
    pub(crate) authorizer: Option<Arc<Authorizer>>,
    pub(crate) receipts: Option<Arc<ReceiptBook>>,
    /// New keys for an authorizer that is already in use.
    new_keys: Option<KeySet>,
    certificate_out: Option<PathBuf>,
}

impl PreparedGateway {
    /// Writes the certificate, if a file for it was given.
    pub(crate) fn write_certificate(&self) -> Result<(), CliError> {
        match &self.certificate_out {
            Some(path) => write_file(path, self.gateway.certificate_pem()),
            None => Ok(()),
        }
    }

    /// Puts the new keys into effect. Requests that run go on.
    pub(crate) fn replace_keys(&mut self) {
        if let (Some(authorizer), Some(keys)) = (&self.authorizer, self.new_keys.take()) {
            authorizer.replace_keys(keys);
        }
    }
}

/// The parts of a running listener that its reload keeps.
pub(crate) struct RunningParts<'a> {
    pub(crate) authorizer: Option<&'a Arc<Authorizer>>,
    pub(crate) receipts: Option<&'a Arc<ReceiptBook>>,
    /// The configuration in use, with the models of its servers.
    pub(crate) configuration: &'a GatewayConfiguration,
}

impl TerminateConfig {
    /// A listener in front of model servers. `directed` are routes that lead to a group; they
    /// take the place of default routes with the same path and method.
    pub(crate) fn with_servers(
        args: TerminateArgs,
        servers: Vec<ModelServer>,
        directed: Vec<Route>,
    ) -> Result<Self, CliError> {
        let has_default = servers.iter().any(|server| server.group == DEFAULT_GROUP);
        let mut configuration = GatewayConfiguration {
            binding: args.binding.into(),
            servers,
            routes: directed,
            tunnel_allow: Vec::new(),
            answer_shape: args.answer_shape,
        };
        let mut defaults = match args.dangerous_all_routes {
            true => vec![Route::dangerous_everything(DEFAULT_GROUP)],
            false => Route::inference_routes(DEFAULT_GROUP),
        };
        if !has_default {
            defaults.clear();
        }
        for text in &args.route {
            defaults.push(parse_route(text, DEFAULT_GROUP)?);
        }
        defaults.into_iter().for_each(|route| configuration.add_route(route));
        configuration.check().map_err(CliError::new)?;
        Ok(Self { args, configuration, limits: GatewayLimits::default() })
    }

    /// The same listener with other limits.
    pub(crate) fn with_limits(mut self, limits: GatewayLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Asks the upstream for its model, and returns the digest of the effective configuration.
    pub(crate) async fn fetch_digest(&self) -> Result<[u8; 32], CliError> {
        Ok(self.fetch_configuration(None).await?.digest())
    }

    /// The settings of API keys.
    pub(crate) fn authorization(&self) -> &AuthorizationArgs {
        &self.args.authorization
    }

    /// Whether answers get signed receipts.
    pub(crate) fn signs_receipts(&self) -> bool {
        self.args.receipts
    }

    /// The configuration, without the models that the servers name.
    pub(crate) fn configuration(&self) -> &GatewayConfiguration {
        &self.configuration
    }

    /// Makes the key, the evidence and the gateway for the address `listen`. It waits for a model
    /// server that is starting; whatever can fail at once fails before. A reload hands in the parts
    /// that are running.
    pub(crate) async fn prepare(
        &self,
        listen: SocketAddr,
        running: Option<RunningParts<'_>>,
        telemetry: Option<&Telemetry>,
    ) -> Result<PreparedGateway, CliError> {
        let shape_in_use = running.as_ref().and_then(|running| running.configuration.answer_shape);
        if let Some(shape) = self.args.answer_shape.filter(|shape| Some(*shape) != shape_in_use) {
            eprint!("{}", describe_price(&shape));
        }
        let attester = self.open_attester()?;
        let certificate = self.read_certificate()?;
        let client_appraiser =
            self.args.client_policy.as_deref().map(policy::file::read_appraiser).transpose()?;
        let api_keys = self.args.authorization.api_keys.as_deref();
        let (authorizer, new_keys) = match &running {
            None => (self.args.authorization.open_authorizer()?, None),
            Some(running) => (running.authorizer.cloned(), api_keys.map(read_keys).transpose()?),
        };
        let receipts = match running.as_ref().and_then(|running| running.receipts) {
            Some(book) => Some(book.clone()),
            None => self.args.receipts.then(|| Arc::new(ReceiptBook::new(process::unix_now))),
        };
        let known = running.map(|running| running.configuration);
        let configuration = self.fetch_configuration(known).await?;
        let args = &self.args;
        let options = GatewayOptions {
            configuration,
            key_validity: args.server.evidence.key_validity(),
            limits: GatewayLimits {
                upstream_check: Duration::from_secs(args.upstream_check_s),
                ..self.limits
            },
            names: certificate_names(listen, &args.server.name),
            session_tickets: args.session_tickets,
        };
        let gateway = match certificate {
            Some(GivenCertificate { chain, key }) => {
                Gateway::with_certificate(options, &chain, &key, process::unix_now)
            }
            None => Gateway::new(options, attester, process::unix_now),
        };
        let explain = |error| CliError::new(error_chain(&error));
        let mut gateway = gateway.map_err(explain)?;
        if let Some(appraiser) = client_appraiser {
            gateway = gateway.with_client_appraiser(appraiser).map_err(explain)?;
        }
        if let Some(authorizer) = &authorizer {
            gateway = gateway.with_authorizer(authorizer.clone());
        }
        if let Some(receipts) = &receipts {
            gateway = gateway.with_receipts(receipts.clone()).map_err(explain)?;
        }
        if args.encrypted_bodies {
            gateway = gateway.with_encrypted_bodies().map_err(explain)?;
        }
        if let Some(telemetry) = telemetry {
            gateway = gateway.with_telemetry(telemetry.clone());
        }
        let mut log_end = None;
        if let Some((log, end)) = args.access_log.as_deref().map(open_access_log).transpose()? {
            gateway = gateway.with_access_log(log);
            log_end = Some(end);
        }
        let certificate_out = args.certificate_out.clone();
        Ok(PreparedGateway { gateway, log_end, authorizer, receipts, new_keys, certificate_out })
    }

    /// The configuration with the roots of https upstreams, which are read now, and with the models
    /// that the servers name now, which are waited for together.
    ///
    /// A server of the configuration in use that does not answer keeps its model: the gateway sends
    /// it nothing before it has confirmed that model, so the digest stays true.
    async fn fetch_configuration(
        &self,
        in_use: Option<&GatewayConfiguration>,
    ) -> Result<GatewayConfiguration, CliError> {
        let mut configuration = self.measure_weights(in_use).await?;
        configuration.read_upstream_roots(process::unix_now).map_err(CliError::new)?;
        let until = Instant::now() + Duration::from_secs(self.args.upstream_wait_s);
        let asked = configuration.servers.iter().map(|server| {
            let servers = in_use.iter().flat_map(|in_use| &in_use.servers);
            let known = servers
                .filter(|known| known.upstream == server.upstream)
                .find_map(|known| known.model_manifest_sha256);
            // What such a server serves is between it and the clients that encrypt to its key.
            let is_keyed = |route: &Route| route.by_key_id && route.group == server.group;
            let is_asked = !configuration.routes.iter().any(is_keyed);
            async move {
                match known {
                    _ if !is_asked => None,
                    None => fetch_model_manifest(&server.upstream, until).await,
                    Some(known) => fetch_new_manifest(&server.upstream, known).await,
                }
            }
        });
        let manifests = futures_util::future::join_all(asked).await;
        for (server, manifest) in configuration.servers.iter_mut().zip(manifests) {
            server.model_manifest_sha256 = manifest;
        }
        Ok(configuration)
    }

    /// The configuration with the weights that are to be measured. Reading them may take minutes, in
    /// which the configuration in use goes on.
    async fn measure_weights(
        &self,
        in_use: Option<&GatewayConfiguration>,
    ) -> Result<GatewayConfiguration, CliError> {
        let (mut configuration, in_use) = (self.configuration.clone(), in_use.cloned());
        if configuration.servers.iter().all(|server| server.weights_path.is_none()) {
            return Ok(configuration);
        }
        let measured = tokio::task::spawn_blocking(move || {
            configuration.measure_weights(in_use.as_ref()).map(|()| configuration)
        });
        let configuration = measured.await.map_err(CliError::new)?.map_err(|error| {
            CliError::new(error)
                .with_hint("--weights takes the file or folder that the model server reads")
        })?;
        for server in &configuration.servers {
            if let Some(weights) = &server.weights {
                let (path, digest) = (weights.path().display(), weights.claim());
                tracing::info!(%path, bytes = weights.bytes(), %digest, "weights measured");
            }
        }
        Ok(configuration)
    }

    fn open_attester(&self) -> Result<Option<Arc<dyn Attest>>, CliError> {
        let (evidence, binding) = (&self.args.server.evidence, self.args.binding);
        if evidence.attester.gpu_index.is_some() && binding != BindingName::Session {
            let text = "evidence of a GPU is shown with session binding only";
            let hint = "add --binding session, or remove --gpu-index";
            return Err(CliError::new(text).with_hint(hint));
        }
        if self.args.client_policy.is_some() && binding != BindingName::Session {
            let text = format!(
                "--client-policy needs session binding, got {}",
                confide_channel::Binding::from(binding).name()
            );
            return Err(CliError::new(text).with_hint("add --binding session"));
        }
        if self.args.session_tickets && binding != BindingName::None {
            let text =
                "session tickets are for --binding none: a resumed session would show no evidence";
            return Err(CliError::new(text).with_hint("remove --session-tickets"));
        }
        if self.args.receipts && binding == BindingName::None {
            let text = "receipts need evidence, which vouches for the key that signs them";
            return Err(CliError::new(text).with_hint("add --binding key, or remove --receipts"));
        }
        if binding == BindingName::None {
            return Ok(None);
        }
        if self.args.certificate.is_some() {
            let text = "a certificate from a file is for --binding none: with evidence, the certificate is made \
                        here and its key stays in memory";
            return Err(CliError::new(text).with_hint("remove --certificate"));
        }
        evidence
            .open_attester("this gateway", ", or give --binding none for ordinary TLS")
            .map(Some)
    }

    /// Reads the certificate and its key, if they are given.
    fn read_certificate(&self) -> Result<Option<GivenCertificate>, CliError> {
        let (Some(chain), Some(key)) = (&self.args.certificate, &self.args.certificate_key) else {
            return Ok(None);
        };
        let key = Zeroizing::new(read_file(key, PEM_BYTES_MAX)?);
        Ok(Some(GivenCertificate { chain: read_file(chain, PEM_BYTES_MAX)?, key }))
    }
}

/// A certificate with its chain, and its private key, in PEM.
struct GivenCertificate {
    chain: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

/// The guarantee that the ready line shows for a gateway.
pub(crate) fn guarantee_of(gateway: &Gateway) -> &'static str {
    match gateway.is_simulated() {
        true => "none (simulated)",
        false => gateway.configuration().guarantee(),
    }
}

/// The fields of the ready line.
pub(crate) fn ready_line_fields(gateway: &Gateway) -> Value {
    let configuration = gateway.configuration();
    let servers = &configuration.servers;
    let manifest = |server: &ModelServer| server.model_manifest_sha256.map(hex::encode);
    let mut fields = json!({
        "answer_shape": configuration.answer_shape.map(|shape| shape.to_string()),
        "binding": gateway.binding_name(),
        "config_digest": hex::encode(configuration.digest()),
        "dangerous_all_routes": configuration.allows_all_routes(),
        "model_manifest_sha256": match servers.as_slice() {
            [server] => manifest(server),
            _ => None,
        },
        "model_manifest_source": configuration.model_manifest_source(),
        "simulated": gateway.is_simulated(),
        "weights": match servers.as_slice() {
            [server] => describe_weights(server),
            _ => Value::Null,
        },
        "upstreams": servers.iter().map(|server| server.upstream.url()).collect::<Vec<_>>(),
    });
    if servers.len() > 1 {
        let describe = |server: &ModelServer| {
            json!({
                "group": server.group,
                "model_manifest_sha256": manifest(server),
                "models": server.models,
                "url": server.upstream.url(),
                "weights": describe_weights(server),
            })
        };
        fields["servers"] = servers.iter().map(describe).collect();
    }
    fields
}

/// The measured weights of a server with their source, or that they were not measured.
fn describe_weights(server: &ModelServer) -> Value {
    match server.measured_weights() {
        None => NOT_MEASURED.into(),
        Some(weights) => json!({
            "sha256": hex::encode(weights.digest),
            "source": weights.source.as_str(),
        }),
    }
}

/// Reads a route that leads to a group of servers.
pub(crate) fn parse_route(text: &str, group: &str) -> Result<Route, CliError> {
    Route::parse(text, group).map_err(|error| {
        CliError::new(error)
            .with_hint("for instance --route /tokenize, or --route 'DELETE /v1/x/*'")
    })
}

/// Parses the address of a model server, which is sent requests over HTTP/2 if `speaks_http2`.
pub(crate) fn parse_upstream(text: &str, speaks_http2: bool) -> Result<Upstream, CliError> {
    let upstream = Upstream::parse(text).map_err(|error| {
        let hint = match &error {
            GatewayError::UpstreamApiPath { without, .. } => format!("give --upstream {without}"),
            _ => "give the model server's address, such as http://127.0.0.1:8000".into(),
        };
        CliError::new(error).with_hint(hint)
    })?;
    Ok(if speaks_http2 { upstream.with_http2() } else { upstream })
}

/// Asks the upstream which model it serves, again and again while it may still be starting.
async fn fetch_model_manifest(upstream: &Upstream, until: Instant) -> Option<[u8; 32]> {
    let mut is_logged = false;
    loop {
        match confide_gateway::fetch_model_manifest(upstream, MODELS_DEADLINE).await {
            Ok(manifest) => return manifest,
            Err(error) if error.is_transient() && Instant::now() < until => {
                if !std::mem::replace(&mut is_logged, true) {
                    let wait_s = until.saturating_duration_since(Instant::now()).as_secs();
                    tracing::warn!(%error, wait_s, "the model server does not answer yet: waiting");
                }
                tokio::time::sleep(UPSTREAM_RETRY).await;
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the configuration digest does not cover the model, so it differs from the digest \
                     with the model: start the model server first"
                );
                return None;
            }
        }
    }
}

/// Asks an upstream once which model it serves; it may be down, and then keeps the model `known`.
async fn fetch_new_manifest(upstream: &Upstream, known: [u8; 32]) -> Option<[u8; 32]> {
    match confide_gateway::fetch_model_manifest(upstream, MODELS_DEADLINE).await {
        Ok(manifest) => manifest,
        Err(error) => {
            tracing::warn!(%error, "the model server does not answer: its model stays as it was");
            Some(known)
        }
    }
}

/// Opens the access log for appending, so that the lines of an earlier gateway stay.
fn open_access_log(path: &Path) -> Result<(AccessLog, AccessLogThread), CliError> {
    if path == Path::new("-") {
        return Ok(AccessLog::start(std::io::stdout(), process::unix_now));
    }
    let file = std::fs::File::options().create(true).append(true).open(path).map_err(|error| {
        CliError::new(format!("cannot write the access log {}: {error}", path.display()))
            .with_hint("give a file in a folder that exists, or - for standard output")
    })?;
    Ok(AccessLog::start(file, process::unix_now))
}
