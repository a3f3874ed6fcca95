//! The file of `confide gateway --config`: listeners, their routes and limits.

mod flags;
mod pass;
mod table;
mod terminate_limits;

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use confide_gateway::{DEFAULT_GROUP, GatewayConfiguration, GatewayLimits, ModelServer, Route};
use serde::Deserialize;
use toml::Table;

pub(crate) use self::pass::PassConfig;
use self::{
    flags::parse_terminate_keys,
    table::{parse_table, take_key},
    terminate_limits::parse_terminate_limits,
};
use super::terminate::{TerminateConfig, parse_route, parse_upstream};
use crate::{
    address::parse_listen_address,
    connections::{ConnectionLimits, ConnectionTable},
    error::CliError,
    files::read_text,
    serving_threads::SERVING_THREADS,
    tunnel::TunnelConfig,
};

/// The longest file in bytes: some 10,000 routes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The largest number of listeners of one process.
const LISTENERS_MAX: usize = 64;
/// The longest error that is shown: it quotes a line of the file.
const ERROR_CHARACTERS_MAX: usize = 500;

/// The content of a file, or what flags describe.
#[derive(Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) listeners: Vec<ListenerConfig>,
    pub(crate) process: ProcessSettings,
}

/// The settings of the whole process, which a reload cannot change.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessSettings {
    pub(crate) telemetry: TelemetrySettings,
    /// The number of threads that serve; by default one for each core.
    pub(crate) threads: Option<u16>,
}

/// Metrics, traces and the administrator's socket, which are all off by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TelemetrySettings {
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Whether answers are read for their tokens even without API keys.
    pub(crate) metrics_tokens: bool,
    pub(crate) admin_socket: Option<PathBuf>,
    pub(crate) traces: Option<TraceTable>,
}

/// The collector of traces, and the fraction of requests that are traced.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceTable {
    pub(crate) url: String,
    pub(crate) ratio: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdminTable {
    socket: PathBuf,
}

/// A listener as the file or the flags describe it.
#[derive(Debug)]
pub(crate) struct ListenerConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) connections: ConnectionLimits,
    pub(crate) kind: ListenerKind,
}

/// The function of a listener.
#[derive(Debug)]
pub(crate) enum ListenerKind {
    /// Passes TLS through unread, to a machine by its server name.
    Pass(PassConfig),
    /// Terminates TLS and proxies HTTP to model servers.
    Terminate(Arc<TerminateConfig>),
    /// Carries raw bytes over WebSockets to listed targets.
    Tunnel(TunnelConfig),
}

impl ListenerKind {
    /// The configuration of a listener that terminates TLS.
    pub(crate) fn configuration(&self) -> Option<&GatewayConfiguration> {
        match self {
            Self::Terminate(terminate) => Some(terminate.configuration()),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    listener: Vec<Table>,
    threads: Option<u16>,
    metrics_listen: Option<String>,
    #[serde(default)]
    metrics_tokens: bool,
    admin: Option<AdminTable>,
    traces: Option<TraceTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpstreamTable {
    url: String,
    group: Option<String>,
    #[serde(default)]
    models: Vec<String>,
    weight: Option<u32>,
    requests_max: Option<u32>,
    health_path: Option<String>,
    upstream_ca: Option<PathBuf>,
    weights: Option<PathBuf>,
    #[serde(default)]
    http2: bool,
    #[serde(default)]
    cache_salt: bool,
}

/// Paths that lead to a group of upstreams.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTable {
    paths: Vec<String>,
    group: Option<String>,
    #[serde(default)]
    by_key_id: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TunnelTable {
    allow: Vec<String>,
    #[serde(default)]
    allow_origin: Vec<String>,
    #[serde(default)]
    dangerous_allow_null_origin: bool,
    page: Option<PathBuf>,
}

/// Reads and checks the file.
pub(crate) fn read_config_file(path: &Path) -> Result<GatewaySettings, CliError> {
    let text = read_text(path, FILE_BYTES_MAX, "the configuration of a gateway")?;
    parse_config(&text).map_err(|message| {
        let shown: String = message.chars().take(ERROR_CHARACTERS_MAX).collect();
        CliError::new(format!("{}: {shown}", path.display()))
            .with_hint("docs/gateway.md, \"The file of listeners\", describes the file")
    })
}

fn parse_config(text: &str) -> Result<GatewaySettings, String> {
    let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let metrics_listen = file.metrics_listen.as_deref().map(parse_listen_address).transpose();
    let telemetry = TelemetrySettings {
        metrics_listen: metrics_listen.map_err(|error| format!("metrics_listen: {error}"))?,
        metrics_tokens: file.metrics_tokens,
        admin_socket: file.admin.map(|admin| admin.socket),
        traces: file.traces,
    };
    if telemetry.metrics_tokens
        && telemetry.metrics_listen.is_none()
        && telemetry.admin_socket.is_none()
    {
        return Err("metrics_tokens: wanted metrics_listen or [admin] too, got neither".into());
    }
    if let Some(threads) = file.threads
        && !SERVING_THREADS.contains(&i64::from(threads))
    {
        let most = SERVING_THREADS.end();
        return Err(format!("threads: wanted 1 to {most}, got {threads}"));
    }
    if file.listener.is_empty() || file.listener.len() > LISTENERS_MAX {
        let got = file.listener.len();
        return Err(format!("wanted 1 to {LISTENERS_MAX} tables [[listener]], got {got}"));
    }
    let numbered = file.listener.into_iter().enumerate();
    let listeners = numbered
        .map(|(index, listener)| {
            parse_listener(listener).map_err(|message| format!("listener {}: {message}", index + 1))
        })
        .collect::<Result<Vec<_>, _>>()?;
    check_usage_files(&listeners)?;
    let process = ProcessSettings { telemetry, threads: file.threads };
    Ok(GatewaySettings { listeners, process })
}

/// Refuses a usage file of two listeners: each would count the other's lines after a restart.
fn check_usage_files(listeners: &[ListenerConfig]) -> Result<(), String> {
    let mut files = HashSet::new();
    for (number, listener) in (1..).zip(listeners) {
        if let ListenerKind::Terminate(terminate) = &listener.kind
            && let Some(file) = terminate.authorization().usage_file()
            && !files.insert(file)
        {
            let file = file.display();
            return Err(format!("listener {number}: usage_file: {file} is an earlier listener's"));
        }
    }
    Ok(())
}

fn parse_listener(mut table: Table) -> Result<ListenerConfig, String> {
    let kind: String = take_key(&mut table, "kind")?.ok_or("kind: wanted one, got none")?;
    let listen: String = take_key(&mut table, "listen")?.ok_or("listen: wanted one, got none")?;
    let listen = parse_listen_address(&listen).map_err(|error| format!("listen: {error}"))?;
    let connections = take_key::<ConnectionTable>(&mut table, "connections")?;
    let connections = connections.unwrap_or_default().check()?;
    let kind = match kind.as_str() {
        "pass" => ListenerKind::Pass(PassConfig::parse(table)?),
        "terminate" => ListenerKind::Terminate(Arc::new(parse_terminate(table)?)),
        "tunnel" => ListenerKind::Tunnel(parse_tunnel(table)?),
        _ => return Err(format!("kind: wanted pass, terminate or tunnel, got {kind:?}")),
    };
    Ok(ListenerConfig { listen, connections, kind })
}

fn parse_terminate(mut table: Table) -> Result<TerminateConfig, String> {
    let upstreams: Vec<UpstreamTable> = take_key(&mut table, "upstream")?.unwrap_or_default();
    let routes: Vec<RouteTable> = take_key(&mut table, "route")?.unwrap_or_default();
    let limits = match take_key::<Table>(&mut table, "limits")? {
        Some(limits) => parse_terminate_limits(limits)?,
        None => GatewayLimits::default(),
    };
    if upstreams.is_empty() {
        return Err("wanted a table [[listener.upstream]], got none".into());
    }
    let message = |error: CliError| error.message().to_owned();
    let mut servers = Vec::new();
    for upstream in upstreams {
        let server =
            ModelServer::new(parse_upstream(&upstream.url, upstream.http2).map_err(message)?);
        servers.push(ModelServer {
            group: upstream.group.unwrap_or(server.group),
            models: upstream.models,
            weight: upstream.weight.unwrap_or(server.weight),
            requests_max: upstream.requests_max.unwrap_or(server.requests_max),
            health_path: upstream.health_path.unwrap_or(server.health_path),
            roots_file: upstream.upstream_ca,
            weights_path: upstream.weights,
            cache_salt: upstream.cache_salt,
            ..ModelServer::new(server.upstream)
        });
    }
    let mut directed = Vec::new();
    for RouteTable { paths, group, by_key_id } in routes {
        let group = group.as_deref().unwrap_or(DEFAULT_GROUP);
        for path in paths {
            directed.push(Route { by_key_id, ..parse_route(&path, group).map_err(message)? });
        }
    }
    let args = parse_terminate_keys(table)?;
    TerminateConfig::with_servers(args, servers, directed)
        .map(|config| config.with_limits(limits))
        .map_err(message)
}

fn parse_tunnel(table: Table) -> Result<TunnelConfig, String> {
    let TunnelTable { allow, allow_origin, dangerous_allow_null_origin, page } =
        parse_table(table)?;
    TunnelConfig::new(&allow, &allow_origin, dangerous_allow_null_origin, page.as_deref())
        .map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use confide_sni::PassLimits;

    use super::*;

    const ROUTE: &str = "[[listener.route]]\nnames = ['a.example']\ntargets = ['127.0.0.1:1']\n";
    const UPSTREAM: &str = "[[listener.upstream]]\nurl = 'http://127.0.0.1:1'\n";

    fn listener(more: &str) -> String {
        format!("[[listener]]\nkind = 'pass'\nlisten = '127.0.0.1:0'\n{more}\n{ROUTE}")
    }

    fn terminating(more: &str) -> String {
        format!("[[listener]]\nkind = 'terminate'\nlisten = '127.0.0.1:0'\n{more}\n{UPSTREAM}")
    }

    fn parse_config(text: &str) -> Result<Vec<ListenerConfig>, String> {
        super::parse_config(text).map(|settings| settings.listeners)
    }

    fn pass_of(config: &ListenerConfig) -> &PassConfig {
        let ListenerKind::Pass(pass) = &config.kind else { panic!("{config:?}") };
        pass
    }

    #[test]
    fn a_listener_has_the_documented_defaults() {
        let [config] = &parse_config(&listener("")).unwrap()[..] else { panic!("one listener") };
        assert_eq!(pass_of(config).limits, PassLimits::default());
        assert_eq!(config.connections.admission().limits().connections, 1024);
        assert_eq!(pass_of(config).route_count, 1);
    }

    #[test]
    fn a_default_that_is_written_out_changes_nothing() {
        let written = "[listener.limits]\nidle_s = 3600\n[listener.connections]\nmax = 1024\nper_address = 256";
        let [short, long] =
            [listener(""), listener(written)].map(|text| parse_config(&text).unwrap());
        assert_eq!(short[0].connections, long[0].connections);
        assert_eq!(pass_of(&short[0]).limits, pass_of(&long[0]).limits);
    }

    #[test]
    fn every_limit_can_be_set() {
        let limits = "[listener.limits]\nhello_s = 1\nconnect_s = 2\nretry_s = 3\nidle_s = 4\nhalf_closed_s = 5\n\
                      drain_s = 6\npipes = 0\n[listener.connections]\nmax = 9\nper_address = 8\nreserved = 1\n\
                      proxy_protocol_from = ['192.0.2.1']";
        let config = parse_config(&listener(limits)).unwrap();
        let seconds = Duration::from_secs;
        let wanted = PassLimits {
            hello: seconds(1),
            connect: seconds(2),
            retry: seconds(3),
            idle: seconds(4),
            half_closed: seconds(5),
            drain: seconds(6),
            pipes: 0,
        };
        assert_eq!(pass_of(&config[0]).limits, wanted);
        let admission = config[0].connections.admission().limits();
        assert_eq!(
            (admission.connections, admission.connections_per_peer, admission.newcomer_reserve),
            (9, 8, 1)
        );
    }

    #[test]
    fn a_file_may_have_listeners_of_every_kind() {
        let tunnel =
            "[[listener]]\nkind = 'tunnel'\nlisten = '[::1]:0'\nallow = ['a.example:8443']\n";
        let keys = "binding = 'none'\n[listener.limits]\nidle_s = 5";
        let text = [listener(""), terminating(keys), tunnel.into()].concat();
        let configs = parse_config(&text).unwrap();
        assert!(matches!(
            configs.iter().map(|config| &config.kind).collect::<Vec<_>>()[..],
            [ListenerKind::Pass(_), ListenerKind::Terminate(_), ListenerKind::Tunnel(_)]
        ));
    }

    #[test]
    fn weights_are_measured_on_this_machine_only() {
        let local = format!("{}weights = 'model'\n", terminating(""));
        assert!(parse_config(&local).is_ok());
        let error =
            parse_config(&local.replace("http://127.0.0.1", "http://10.0.0.1")).unwrap_err();
        let wanted = "listener 1: model server `http://10.0.0.1:1` is not usable: wanted weights";
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn what_the_file_does_not_say_or_says_wrongly_is_refused() {
        let tunnel = "[[listener]]\nkind = 'tunnel'\nlisten = '127.0.0.1:0'\n";
        for (text, wanted) in [
            (String::new(), "wanted 1 to 64 tables [[listener]], got 0"),
            (
                "[[listener]]\nkind = 'pass'\nlisten = '127.0.0.1:0'".into(),
                "listener 1: routes: wanted at least one",
            ),
            (
                listener("").replace("pass", "proxy"),
                "listener 1: kind: wanted pass, terminate or tunnel, got \"proxy\"",
            ),
            ("[[listener]]\nkind = 'pass'".into(), "listener 1: listen: wanted one, got none"),
            ("[[listener]]\nlisten = '127.0.0.1:0'".into(), "kind: wanted one, got none"),
            (listener("").replace("127.0.0.1:0", "8000"), "listener 1: listen: wanted ADDR:PORT"),
            (listener("idle = 3"), "unknown field `idle`"),
            (
                listener("[listener.limits]\nidle_s = 0"),
                "limits.idle_s: wanted 1 to 86400 seconds, got 0",
            ),
            (listener("[listener.limits]\npipes = 5000"), "limits.pipes: wanted at most 4096"),
            (
                listener("[listener.connections]\nmax = 0"),
                "connections.max: wanted 1 to 1000000, got 0",
            ),
            (
                listener("[listener.connections]\nper_address = 0"),
                "connections.per_address: wanted 1 to",
            ),
            (
                listener("[listener.connections]\nmax = 2\nreserved = 2"),
                "connections.reserved: wanted less than",
            ),
            (
                listener("[listener.connections]\nmax = 2\nper_address = 3"),
                "connections.per_address: wanted 1 to connections.max, 2, got 3",
            ),
            (listener("").replace("a.example", "10.0.0.1"), "route 1: \"10.0.0.1\": server name"),
            (listener("").replace("127.0.0.1:1", "127.0.0.1"), "route 1: target: wanted HOST:PORT"),
            (
                format!("{}{ROUTE}", listener("")),
                "route 2: a.example already leads to another route",
            ),
            (terminating("upstreams = 'x'"), "listener 1: unknown key `upstreams`"),
            (terminating("binding = 'any'"), "listener 1: invalid value 'any' for 'binding"),
            (
                terminating("").replace(UPSTREAM, ""),
                "wanted a table [[listener.upstream]], got none",
            ),
            (
                terminating("api_keys = 'k'\nusage_file = 'u'").repeat(2),
                "listener 2: usage_file: u is an earlier listener's",
            ),
            (terminating("").replace("http:", "ftp:"), "listener 1: upstream `ftp://127.0.0.1:1`"),
            (
                format!("{}upstream_ca = 'ca.pem'\n", terminating("")),
                "listener 1: model server `http://127.0.0.1:1` is not usable: wanted root",
            ),
            (terminating("[listener.limits]\nidle = 1"), "limits: unknown key `idle`"),
            (tunnel.into(), "listener 1: missing field `allow`"),
            (format!("metrics_listen = '9100'\n{}", listener("")), "metrics_listen: wanted ADDR"),
            (format!("metrics_tokens = true\n{}", listener("")), "metrics_tokens: wanted metrics_"),
            (format!("[admin]\nport = 1\n{}", listener("")), "unknown field `port`"),
            (format!("[traces]\nurl = 'x'\n{}", listener("")), "missing field `ratio`"),
        ] {
            let error = parse_config(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}\n{error}");
        }
    }

    #[test]
    fn a_tunnel_has_targets_origins_and_a_page_that_can_be_served() {
        let tunnel = "[[listener]]\nkind = 'tunnel'\nlisten = '127.0.0.1:0'\n";
        let null = format!("{tunnel}allow = ['h:1']\ndangerous_allow_null_origin = true");
        assert!(parse_config(&null).is_ok());
        for (text, wanted) in [
            (format!("{tunnel}allow = ['host']"), "listener 1: allow: "),
            (
                format!("{tunnel}allow = ['h:1']\nallow_origin = ['null']"),
                "listener 1: allow_origin: ",
            ),
            (
                format!("{tunnel}allow = ['h:1']\npage = 'page.html'"),
                "listener 1: page: wanted allow_origin too",
            ),
            (
                format!(
                    "{tunnel}allow = ['h:1']\nallow_origin = ['http://h']\npage = '/no/page.html'"
                ),
                "listener 1: cannot read /no/page.html",
            ),
            (
                format!(
                    "{tunnel}allow = ['h:1']\nallow_origin = ['http://h']\npage = 'Cargo.toml'"
                ),
                "listener 1: page: Cargo.toml: wanted the released confide-page.html",
            ),
        ] {
            let error = parse_config(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}\n{error}");
        }
    }
}
