//! Serves listeners until the process is asked to stop, and reloads them at SIGHUP.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use confide_gateway::{AccessLogThread, ReloadableGateway};
use confide_http::DrainOutcome;
use confide_sni::{PassLimits, Passthrough};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use super::{
    config_file::{ListenerConfig, ListenerKind, TunnelConfig, read_config_file},
    terminate::{PreparedGateway, TerminateConfig, guarantee_of, ready_line_fields},
};
use crate::{
    connections::ConnectionLimits, error::CliError, process, tunnel::serve_tunnel_listener,
};

/// What a listener that passes TLS through protects itself, in the ready line.
const PASS_GUARANTEE: &str = "none (TLS is passed through unread)";
/// What a tunnel protects itself.
const TUNNEL_GUARANTEE: &str = "none";
/// The guarantee of a process whose listeners have different ones.
const MIXED_GUARANTEE: &str = "none (the listeners differ)";

/// Serves all listeners of the file until the process is asked to stop.
pub(super) async fn serve_file(path: &Path) -> Result<ExitCode, CliError> {
    serve_source(ListenerSource::File(path.to_owned())).await
}

/// Serves one listener that flags describe, until the process is asked to stop.
pub(super) async fn serve_terminating(
    listen: SocketAddr,
    connections: ConnectionLimits,
    terminate: TerminateConfig,
) -> Result<ExitCode, CliError> {
    let terminate = Arc::new(terminate);
    serve_source(ListenerSource::Flags { listen, connections, terminate }).await
}

/// The origin of the listeners' configuration, which a reload reads again.
enum ListenerSource {
    File(PathBuf),
    Flags { listen: SocketAddr, connections: ConnectionLimits, terminate: Arc<TerminateConfig> },
}

impl ListenerSource {
    fn read(&self) -> Result<Vec<ListenerConfig>, CliError> {
        match self {
            Self::File(path) => read_config_file(path),
            Self::Flags { listen, connections, terminate } => {
                let kind = ListenerKind::Terminate(terminate.clone());
                Ok(vec![ListenerConfig { listen: *listen, connections: connections.clone(), kind }])
            }
        }
    }
}

/// The listeners that serve.
struct ListenerSet {
    source: ListenerSource,
    listeners: Vec<OpenListener>,
    log_ends: Mutex<Vec<AccessLogThread>>,
}

struct OpenListener {
    listen: SocketAddr,
    connections: ConnectionLimits,
    service: Service,
}

/// What an open listener does with connections, as far as a reload can replace it.
enum Service {
    Pass(Arc<Passthrough>, PassLimits),
    Terminate(Arc<ReloadableGateway>),
    Tunnel(TunnelConfig),
}

/// A checked part of a reload that has not taken effect yet.
enum Replacement {
    Routes(confide_sni::RouteTable),
    Gateway(Box<PreparedGateway>),
    Nothing,
}

async fn serve_source(source: ListenerSource) -> Result<ExitCode, CliError> {
    // Before the signals are caught, so that a file that does not end can be interrupted.
    let configs = source.read()?;
    let mut stop = pin!(process::stop_signal());
    let mut hangup = signal(SignalKind::hangup())
        .map_err(|error| CliError::new(format!("cannot catch SIGHUP: {error}")))?;
    let (stopping, stopped) = watch::channel(false);
    let mut running = JoinSet::new();
    let mut set = ListenerSet { source, listeners: Vec::new(), log_ends: Mutex::default() };
    let mut descriptions = Vec::new();
    // All addresses are taken before a model server is waited for.
    let mut bound = Vec::new();
    for config in configs {
        bound.push((process::listen(config.listen).await?, config));
    }
    for ((listener, address), config) in bound {
        let opened = tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(ExitCode::SUCCESS),
            opened = set.open(config, listener, &mut running, &stopped) => opened?,
        };
        descriptions.push(process::merge_objects(opened, json!({ "listen": address.to_string() })));
    }
    print_ready(&set.source, descriptions);
    let set = Arc::new(set);
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
                reload.spawn_blocking(move || Handle::current().block_on(set.reload_and_print()));
            }
        }
    }
    stopping.send_replace(true);
    while let Some(drained) = running.join_next().await {
        if let Ok(drained) = drained {
            process::warn_of_cut_connections(drained);
        }
    }
    // A reload that still runs holds a sender of the log, so its end cannot be waited for.
    if let Some(ListenerSet { listeners, log_ends, .. }) = Arc::into_inner(set) {
        drop(listeners);
        let log_ends = log_ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        log_ends.into_iter().for_each(AccessLogThread::finish);
    }
    Ok(ExitCode::SUCCESS)
}

impl ListenerSet {
    /// Starts to serve a listener, and returns its description for the ready line.
    async fn open(
        &mut self,
        config: ListenerConfig,
        listener: TcpListener,
        running: &mut JoinSet<DrainOutcome>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Value, CliError> {
        let mut stopped = stopped.clone();
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let ListenerConfig { listen, connections, kind } = config;
        let admission = connections.admission();
        let (service, description) = match kind {
            ListenerKind::Pass(pass) => {
                let description = describe_pass(pass.route_count);
                let passthrough = Arc::new(Passthrough::new(pass.routes, pass.limits));
                running.spawn(passthrough.clone().serve(listener, admission, stop));
                (Service::Pass(passthrough, pass.limits), description)
            }
            ListenerKind::Tunnel(tunnel) => {
                let description = describe_tunnel(&tunnel);
                let (allow, origins) = (tunnel.allow.clone(), tunnel.origins.clone());
                running.spawn(serve_tunnel_listener(listener, admission, allow, origins, stop));
                (Service::Tunnel(tunnel), description)
            }
            ListenerKind::Terminate(terminate) => {
                let prepared = terminate.prepare(listen).await?;
                let description = prepared.describe();
                self.keep_log_end(prepared.log_end);
                let gateway = prepared.gateway.with_admission(admission);
                let gateway = Arc::new(ReloadableGateway::new(gateway));
                let serving = gateway.clone();
                running.spawn(async move { serving.serve(listener, stop).await });
                (Service::Terminate(gateway), description)
            }
        };
        self.listeners.push(OpenListener { listen, connections, service });
        Ok(description)
    }

    fn keep_log_end(&self, end: Option<AccessLogThread>) {
        self.log_ends.lock().unwrap_or_else(PoisonError::into_inner).extend(end);
    }

    async fn reload_and_print(&self) {
        let line = match self.reload().await {
            Ok(listeners) => json!({ "reloaded": true, "listeners": listeners }),
            Err(error) => {
                tracing::error!(error = error.message(), "the configuration was not reloaded");
                json!({ "reloaded": false, "error": error.message() })
            }
        };
        process::print_line(&line);
    }

    /// Replaces what all listeners do, or nothing. Returns their new descriptions.
    async fn reload(&self) -> Result<Vec<Value>, CliError> {
        let configs = self.source.read()?;
        let is_same = configs.len() == self.listeners.len()
            && configs.iter().zip(&self.listeners).all(|(config, open)| open.admits(config));
        if !is_same {
            let text = "the number, kinds, addresses and connection limits of listeners, the limits of the kind pass \
                        and the targets of the kind tunnel cannot be reloaded";
            return Err(CliError::new(text).with_hint("restart the gateway"));
        }
        let mut replacements = Vec::new();
        let mut descriptions = Vec::new();
        for config in configs {
            let (replacement, description) = match config.kind {
                ListenerKind::Pass(pass) => {
                    (Replacement::Routes(pass.routes), describe_pass(pass.route_count))
                }
                ListenerKind::Tunnel(tunnel) => (Replacement::Nothing, describe_tunnel(&tunnel)),
                ListenerKind::Terminate(terminate) => {
                    let prepared = terminate.prepare(config.listen).await?;
                    let description = prepared.describe();
                    (Replacement::Gateway(Box::new(prepared)), description)
                }
            };
            replacements.push(replacement);
            descriptions.push(description);
        }
        for (open, replacement) in self.listeners.iter().zip(replacements) {
            match (&open.service, replacement) {
                (Service::Pass(passthrough, _), Replacement::Routes(routes)) => {
                    passthrough.replace_routes(routes);
                }
                (Service::Terminate(running), Replacement::Gateway(prepared)) => {
                    self.keep_log_end(prepared.log_end);
                    running.replace(prepared.gateway);
                }
                _ => {}
            }
        }
        Ok(descriptions)
    }
}

impl OpenListener {
    /// Whether a reload can make this listener what `config` describes.
    fn admits(&self, config: &ListenerConfig) -> bool {
        let is_kind_same = match (&self.service, &config.kind) {
            (Service::Pass(_, limits), ListenerKind::Pass(pass)) => *limits == pass.limits,
            (Service::Tunnel(open), ListenerKind::Tunnel(tunnel)) => open == tunnel,
            (Service::Terminate(_), ListenerKind::Terminate(_)) => true,
            _ => false,
        };
        is_kind_same && self.listen == config.listen && self.connections == config.connections
    }
}

impl PreparedGateway {
    fn describe(&self) -> Value {
        let fields = json!({ "kind": "terminate", "guarantee": guarantee_of(&self.gateway) });
        process::merge_objects(fields, ready_line_fields(&self.gateway))
    }
}

fn describe_pass(routes: usize) -> Value {
    json!({ "kind": "pass", "guarantee": PASS_GUARANTEE, "routes": routes })
}

fn describe_tunnel(tunnel: &TunnelConfig) -> Value {
    let allow: Vec<_> = tunnel.allow.targets().collect();
    let origins: Vec<_> = tunnel.origins.iter().collect();
    json!({ "kind": "tunnel", "guarantee": TUNNEL_GUARANTEE, "allow": allow, "allow_origins": origins })
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
