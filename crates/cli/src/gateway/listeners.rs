//! Serves listeners until the process is asked to stop, and reloads them at SIGHUP.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use confide_gateway::{
    AccessLogThread, AdminRoutes, Authorizer, Gateway, GatewayConfiguration, GatewayMetrics,
    ReceiptBook, ReloadOutcome, ReloadableGateway, ServerStates, Telemetry, TraceExportTask,
};
use confide_http::{DrainOutcome, Listener, ServingThreads};
use confide_sni::{PassLimits, Passthrough, RouteTable};
use serde_json::{Map, Value, json};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use super::{
    config_file::{
        GatewaySettings, ListenerConfig, ListenerKind, ProcessSettings, read_config_file,
    },
    telemetry::OpenTelemetry,
    terminate::{
        AuthorizationArgs, PreparedGateway, RunningParts, TerminateConfig, guarantee_of,
        ready_line_fields,
    },
};
use crate::{
    connections::ConnectionLimits,
    error::CliError,
    process,
    serving_threads::{listen_on_threads, start_serving_threads},
    tunnel::{TunnelConfig, serve_tunnel_listener},
};

/// The guarantee of a listener that passes TLS through, in the ready line.
const PASS_GUARANTEE: &str = "none (TLS is passed through unread)";
/// The guarantee of a tunnel: the bytes that pass are protected by TLS, and not by the tunnel.
const TUNNEL_GUARANTEE: &str = "none";
/// The guarantee of a process whose listeners have different ones.
const MIXED_GUARANTEE: &str = "none (the listeners differ)";

/// Serves all listeners of the file until the process is asked to stop.
pub(super) fn serve_file(path: &Path) -> Result<ExitCode, CliError> {
    let source = ListenerSource::File(path.to_owned());
    process::block_on_this_thread(serve_source(source))?
}

/// Serves one listener that flags describe, until the process is asked to stop.
pub(super) fn serve_terminating(listener: FlagListener) -> Result<ExitCode, CliError> {
    let FlagListener { listen, connections, threads, terminate } = listener;
    let terminate = Arc::new(terminate);
    let source = ListenerSource::Flags { listen, connections, threads, terminate };
    process::block_on_this_thread(serve_source(source))?
}

/// The listener that flags describe, and the number of threads that serve it.
pub(super) struct FlagListener {
    pub(super) listen: SocketAddr,
    pub(super) connections: ConnectionLimits,
    pub(super) threads: Option<u16>,
    pub(super) terminate: TerminateConfig,
}

/// The origin of the listeners' configuration, which a reload reads again.
enum ListenerSource {
    File(PathBuf),
    Flags {
        listen: SocketAddr,
        connections: ConnectionLimits,
        threads: Option<u16>,
        terminate: Arc<TerminateConfig>,
    },
}

impl ListenerSource {
    fn read(&self) -> Result<GatewaySettings, CliError> {
        match self {
            Self::File(path) => read_config_file(path),
            Self::Flags { listen, connections, threads, terminate } => {
                let kind = ListenerKind::Terminate(terminate.clone());
                let connections = connections.clone();
                let listeners = vec![ListenerConfig { listen: *listen, connections, kind }];
                let process = ProcessSettings { threads: *threads, ..ProcessSettings::default() };
                Ok(GatewaySettings { listeners, process })
            }
        }
    }
}

/// The listeners that serve.
struct ListenerSet {
    source: ListenerSource,
    settings: ProcessSettings,
    telemetry: Option<Telemetry>,
    listeners: Vec<OpenListener>,
    statuses: Mutex<Vec<ListenerStatus>>,
    log_ends: Mutex<Vec<AccessLogThread>>,
    /// The lock that the running reload holds.
    reloading: tokio::sync::Mutex<()>,
    /// Becomes true when the process is asked to stop.
    stopped: watch::Receiver<bool>,
}

struct OpenListener {
    listen: SocketAddr,
    address: SocketAddr,
    connections: ConnectionLimits,
    service: Service,
}

/// The service of an open listener, with the parts that a reload replaces or compares.
enum Service {
    Pass(Arc<Passthrough>, PassLimits),
    Terminate {
        gateway: Arc<ReloadableGateway>,
        authorization: AuthorizationArgs,
        authorizer: Option<Arc<Authorizer>>,
        receipts: Option<Arc<ReceiptBook>>,
    },
    Tunnel(Arc<TunnelConfig>),
}

/// A listener as the ready line and the administrator's socket describe it.
struct ListenerStatus {
    description: Value,
    servers: Option<ServerStates>,
    configuration: Option<GatewayConfiguration>,
}

/// A checked part of a reload that has not taken effect yet.
enum Replacement {
    Routes(RouteTable),
    Gateway(Box<PreparedGateway>),
    /// The listener stays as it is.
    Unchanged,
}

async fn serve_source(source: ListenerSource) -> Result<ExitCode, CliError> {
    // Before the signals are caught, so that a file that does not end can be interrupted.
    let GatewaySettings { listeners: configs, process: settings } = source.read()?;
    let threads = start_serving_threads(settings.threads)?;
    let mut stop = pin!(process::stop_signal());
    let mut hangup = signal(SignalKind::hangup())
        .map_err(|error| CliError::new(format!("cannot catch SIGHUP: {error}")))?;
    let (stopping, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    let bound = bind_listeners(configs, &threads).await?;
    let configurations: Vec<&GatewayConfiguration> =
        bound.iter().filter_map(|(_, config)| config.kind.configuration()).collect();
    let opened = OpenTelemetry::open(&settings.telemetry, configurations).await?;
    let telemetry = opened.as_ref().map(|opened| opened.telemetry.clone());
    let mut set = ListenerSet::new(source, settings, telemetry, stopped);
    for ((listener, address), config) in bound {
        tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
            opened = set.open(config, listener, address, &mut running) => opened?,
        }
    }
    set.show_config_digests();
    print_ready(&set.source, set.describe_listeners());
    let set = Arc::new(set);
    let mut administration = JoinSet::new();
    let export = opened.and_then(|opened| {
        let routes = set.admin_routes(opened.telemetry.metrics.clone());
        opened.serve(routes, &mut administration)
    });
    // A reload that waits, or an output that nobody reads, must not keep the process from stopping.
    let mut reload = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.as_mut() => break,
            Some(_) = reload.join_next(), if !reload.is_empty() => {}
            // None ends before the stop, unless it has failed: the others must not hide that.
            Some(_) = running.join_next() => {
                return Err(CliError::new("a listener has failed; the error is in the log"));
            }
            _ = hangup.recv(), if reload.is_empty() => {
                let set = set.clone();
                reload.spawn(async move {
                    let (Ok(line) | Err(line)) = set.reload_in_background().await;
                    // An output that nobody reads stops a thread for blocking work, and not this one.
                    let print = move || process::print_line(&line);
                    let _ = tokio::task::spawn_blocking(print).await;
                });
            }
        }
    }
    stopping.send_replace(true);
    while let Some(drained) = running.join_next().await {
        if let Ok(drained) = drained {
            process::warn_of_cut_connections(drained);
        }
    }
    administration.shutdown().await;
    // A reload that still runs holds a sender of the log, so its end cannot be waited for.
    if let Some(set) = Arc::into_inner(set) {
        set.finish(export).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes all addresses, before a model server is waited for.
async fn bind_listeners(
    configs: Vec<ListenerConfig>,
    threads: &ServingThreads,
) -> Result<Vec<((Listener, SocketAddr), ListenerConfig)>, CliError> {
    let mut bound = Vec::new();
    for config in configs {
        bound.push((listen_on_threads(threads, config.listen).await?, config));
    }
    Ok(bound)
}

impl ListenerSet {
    fn new(
        source: ListenerSource,
        settings: ProcessSettings,
        telemetry: Option<Telemetry>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self {
            source,
            settings,
            telemetry,
            listeners: Vec::new(),
            statuses: Mutex::default(),
            log_ends: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            stopped,
        }
    }

    /// Waits until all lines of the access logs are written and all spans are sent.
    async fn finish(self, export: Option<TraceExportTask>) {
        let Self { listeners, log_ends, telemetry, .. } = self;
        drop((listeners, telemetry));
        let log_ends = log_ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        log_ends.into_iter().for_each(AccessLogThread::finish);
        if let Some(export) = export {
            export.finish().await;
        }
    }

    /// Starts to serve a listener.
    async fn open(
        &mut self,
        config: ListenerConfig,
        listener: Listener,
        address: SocketAddr,
        running: &mut JoinSet<DrainOutcome>,
    ) -> Result<(), CliError> {
        let mut stopped = self.stopped.clone();
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let ListenerConfig { listen, connections, kind } = config;
        let admission = connections.admission();
        let (service, status) = match kind {
            ListenerKind::Pass(pass) => {
                let status = ListenerStatus::of_pass(pass.route_count);
                let passthrough = Arc::new(Passthrough::new(pass.routes, pass.limits));
                running.spawn(passthrough.clone().serve(listener, admission, stop));
                (Service::Pass(passthrough, pass.limits), status)
            }
            ListenerKind::Tunnel(tunnel) => {
                let tunnel = Arc::new(tunnel);
                let status = ListenerStatus::of_tunnel(&tunnel);
                running.spawn(serve_tunnel_listener(listener, admission, tunnel.clone(), stop));
                (Service::Tunnel(tunnel), status)
            }
            ListenerKind::Terminate(terminate) => {
                let prepared = terminate.prepare(listen, None, self.telemetry.as_ref()).await;
                let prepared = match self.source {
                    ListenerSource::File(_) => prepared.map_err(|error| {
                        error.in_part(&format!("listener {}", self.listeners.len() + 1))
                    }),
                    ListenerSource::Flags { .. } => prepared,
                }?;
                prepared.write_certificate()?;
                let status = ListenerStatus::of_gateway(&prepared.gateway);
                lock(&self.log_ends).extend(prepared.log_end);
                let gateway = prepared.gateway.with_admission(admission);
                let gateway = Arc::new(ReloadableGateway::new(gateway));
                let serving = gateway.clone();
                running.spawn(async move { serving.serve(listener, stop).await });
                let authorization = terminate.authorization().clone();
                let (authorizer, receipts) = (prepared.authorizer, prepared.receipts);
                (Service::Terminate { gateway, authorization, authorizer, receipts }, status)
            }
        };
        self.listeners.push(OpenListener { listen, address, connections, service });
        lock(&self.statuses).push(status);
        Ok(())
    }

    /// The listeners as the ready line describes them.
    fn describe_listeners(&self) -> Vec<Value> {
        let statuses = lock(&self.statuses);
        let described = statuses.iter().zip(&self.listeners).map(|(status, open)| {
            let listen = json!({ "listen": open.address.to_string() });
            process::merge_objects(status.description.clone(), listen)
        });
        described.collect()
    }

    fn show_config_digests(&self) {
        if let Some(Telemetry { metrics, .. }) = &self.telemetry {
            let statuses = lock(&self.statuses);
            let configurations = statuses.iter().filter_map(|status| status.configuration.as_ref());
            metrics.set_config_digests(configurations.map(GatewayConfiguration::digest));
        }
    }

    /// The answers of the administrator's socket.
    fn admin_routes(self: &Arc<Self>, metrics: Arc<GatewayMetrics>) -> AdminRoutes {
        let (status, reload) = (Arc::downgrade(self), Arc::downgrade(self));
        let status = move || status.upgrade().map(|set| set.status()).unwrap_or_default();
        let reload = move || {
            let set = reload.upgrade();
            async move {
                match set {
                    Some(set) => set.reload_in_background().await,
                    None => Err(json!({ "reloaded": false, "error": "the gateway stops" })),
                }
            }
        };
        AdminRoutes::new(metrics, status, reload)
    }

    /// The fields of the status: the listeners, with the state of their model servers.
    fn status(&self) -> Map<String, Value> {
        let described = self.describe_listeners().into_iter();
        let statuses = lock(&self.statuses);
        let listeners = described.zip(&*statuses).map(|(listener, status)| match &status.servers {
            Some(servers) => process::merge_objects(listener, describe_servers(servers)),
            None => listener,
        });
        Map::from_iter([("listeners".to_owned(), listeners.collect())])
    }

    /// Reloads on a thread for blocking work, since files are read and evidence is made. Returns
    /// the line that is printed: what is served now, or why nothing has changed.
    async fn reload_in_background(self: &Arc<Self>) -> ReloadOutcome {
        let (set, mut stopped) = (self.clone(), self.stopped.clone());
        let reload = async move {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_stopped| *is_stopped) => {
                    Err(CliError::new("the gateway stops"))
                }
                outcome = set.reload() => outcome,
            }
        };
        let work = move || Handle::current().block_on(reload);
        let outcome = tokio::task::spawn_blocking(work).await;
        let outcome = outcome.unwrap_or_else(|error| Err(CliError::new(error)));
        outcome
            .map(|()| json!({ "reloaded": true, "listeners": self.describe_listeners() }))
            .map_err(|error| {
                tracing::error!(error = error.message(), "the configuration was not reloaded");
                json!({ "reloaded": false, "error": error.message() })
            })
    }

    /// Refuses settings that need a restart.
    fn refuse_fixed_changes(&self, settings: &GatewaySettings) -> Result<(), CliError> {
        let GatewaySettings { listeners: configs, process } = settings;
        let refuse = |what: String| {
            let text = format!("{what} cannot be changed by a reload");
            Err(CliError::new(text).with_hint("restart the gateway"))
        };
        if configs.len() != self.listeners.len() {
            let (wanted, got) = (self.listeners.len(), configs.len());
            return refuse(format!("the number of listeners (wanted {wanted}, got {got})"));
        }
        if process.telemetry != self.settings.telemetry {
            return refuse("[admin], [traces], metrics_listen and metrics_tokens".into());
        }
        if process.threads != self.settings.threads {
            return refuse("threads".into());
        }
        for (config, (number, open)) in configs.iter().zip((1..).zip(&self.listeners)) {
            if let Some(fixed) = open.find_fixed_change(config) {
                return refuse(format!("listener {number}: {fixed}"));
            }
        }
        Ok(())
    }

    /// Replaces what all listeners do, or nothing.
    async fn reload(&self) -> Result<(), CliError> {
        let _turn = self.reloading.lock().await;
        let settings = self.source.read()?;
        self.refuse_fixed_changes(&settings)?;
        let configs = settings.listeners;
        let numbered = || (1..).zip(&self.listeners);
        let in_use: Vec<_> =
            lock(&self.statuses).iter().map(|status| status.configuration.clone()).collect();
        let mut replacements = Vec::new();
        let mut statuses = Vec::new();
        for ((config, (number, open)), in_use) in configs.into_iter().zip(numbered()).zip(&in_use) {
            let (replacement, status) = match config.kind {
                ListenerKind::Pass(pass) => {
                    let status = ListenerStatus::of_pass(pass.route_count);
                    (Replacement::Routes(pass.routes), status)
                }
                ListenerKind::Tunnel(tunnel) => {
                    (Replacement::Unchanged, ListenerStatus::of_tunnel(&tunnel))
                }
                ListenerKind::Terminate(terminate) => {
                    let running =
                        in_use.as_ref().and_then(|configuration| open.running_parts(configuration));
                    let telemetry = self.telemetry.as_ref();
                    let prepared = terminate.prepare(config.listen, running, telemetry).await;
                    let prepared =
                        prepared.map_err(|error| error.in_part(&format!("listener {number}")))?;
                    let status = ListenerStatus::of_gateway(&prepared.gateway);
                    (Replacement::Gateway(Box::new(prepared)), status)
                }
            };
            replacements.push(replacement);
            statuses.push(status);
        }
        // Only a disk that fails now leaves a certificate that is not in use.
        for replacement in &replacements {
            if let Replacement::Gateway(prepared) = replacement {
                prepared.write_certificate()?;
            }
        }
        for (open, replacement) in self.listeners.iter().zip(replacements) {
            match (&open.service, replacement) {
                (Service::Pass(passthrough, _), Replacement::Routes(routes)) => {
                    passthrough.replace_routes(routes);
                }
                (Service::Terminate { gateway, .. }, Replacement::Gateway(mut prepared)) => {
                    lock(&self.log_ends).extend(prepared.log_end.take());
                    prepared.replace_keys();
                    gateway.replace(prepared.gateway);
                }
                _ => {}
            }
        }
        *lock(&self.statuses) = statuses;
        self.show_config_digests();
        Ok(())
    }
}

impl OpenListener {
    /// Finds a setting that differs in `config` and needs a restart.
    fn find_fixed_change(&self, config: &ListenerConfig) -> Option<&'static str> {
        if self.listen != config.listen {
            return Some("listen");
        }
        if self.connections != config.connections {
            return Some("[listener.connections]");
        }
        let (fixed, is_same) = match (&self.service, &config.kind) {
            (Service::Pass(_, limits), ListenerKind::Pass(pass)) => {
                ("[listener.limits]", *limits == pass.limits)
            }
            (Service::Tunnel(open), ListenerKind::Tunnel(tunnel)) => {
                ("allow, allow_origin, dangerous_allow_null_origin and page", **open == *tunnel)
            }
            (Service::Terminate { receipts, .. }, ListenerKind::Terminate(terminate))
                if receipts.is_some() != terminate.signs_receipts() =>
            {
                ("receipts", false)
            }
            (Service::Terminate { authorization, .. }, ListenerKind::Terminate(terminate)) => {
                let fixed = "api_keys, authorization_hook, upstream_key_file and usage_file";
                (fixed, authorization == terminate.authorization())
            }
            _ => ("kind", false),
        };
        (!is_same).then_some(fixed)
    }

    /// The parts that a reload keeps, with the configuration in use.
    fn running_parts<'a>(
        &'a self,
        configuration: &'a GatewayConfiguration,
    ) -> Option<RunningParts<'a>> {
        let Service::Terminate { authorizer, receipts, .. } = &self.service else { return None };
        let (authorizer, receipts) = (authorizer.as_ref(), receipts.as_ref());
        Some(RunningParts { authorizer, receipts, configuration })
    }
}

impl ListenerStatus {
    fn of_pass(routes: usize) -> Self {
        let description = json!({ "kind": "pass", "guarantee": PASS_GUARANTEE, "routes": routes });
        Self { description, servers: None, configuration: None }
    }

    fn of_tunnel(tunnel: &TunnelConfig) -> Self {
        let fields = json!({ "kind": "tunnel", "guarantee": TUNNEL_GUARANTEE });
        let description = process::merge_objects(fields, tunnel.to_json());
        Self { description, servers: None, configuration: None }
    }

    fn of_gateway(gateway: &Gateway) -> Self {
        let fields = json!({ "kind": "terminate", "guarantee": guarantee_of(gateway) });
        Self {
            description: process::merge_objects(fields, ready_line_fields(gateway)),
            servers: Some(gateway.server_states()),
            configuration: Some(gateway.configuration().clone()),
        }
    }
}

/// The state of model servers and queues.
fn describe_servers(states: &ServerStates) -> Value {
    let servers = states.servers().into_iter().map(|server| {
        json!({
            "url": server.url,
            "group": server.group,
            "running": server.running,
            "requests_max": server.requests_max,
            "healthy": server.is_healthy,
            "connect_failures": server.connect_failures,
        })
    });
    let queues = states.queues().into_iter();
    let queues = queues.map(|queue| json!({ "group": queue.group, "waiting": queue.waiting }));
    json!({ "servers": servers.collect::<Value>(), "queues": queues.collect::<Value>() })
}

/// Locks a value that every holder of the lock leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the ready line: with a file, the list of its listeners; with flags, the fields of the only one.
fn print_ready(source: &ListenerSource, mut descriptions: Vec<Value>) {
    let of_first = |key: &str| descriptions.first().map(|first| first[key].clone());
    let (listen, guarantee) = (of_first("listen"), of_first("guarantee"));
    let is_uniform =
        descriptions.iter().all(|listener| Some(&listener["guarantee"]) == guarantee.as_ref());
    let guarantee = guarantee.filter(|_| is_uniform).unwrap_or(MIXED_GUARANTEE.into());
    let more = match source {
        ListenerSource::File(_) => json!({ "listeners": descriptions }),
        ListenerSource::Flags { .. } => descriptions.remove(0),
    };
    let fields = json!({ "listen": listen, "guarantee": guarantee, "pid": std::process::id() });
    process::print_ready_line(process::merge_objects(fields, more));
}
