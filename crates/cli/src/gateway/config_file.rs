//! The file of `confide gateway --config`: listeners, their routes and limits.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use confide_http::{Admission, AdmissionLimits};
use confide_sni::{NamePattern, PassLimits, PassRoute, PassTarget, RouteTable};
use serde::Deserialize;

use crate::{
    address::parse_listen_address,
    connections::{CONNECTIONS, CONNECTIONS_MAX, PROXIES_MAX},
    error::CliError,
    files::read_text,
};

/// The longest file in bytes: some 10,000 routes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The largest number of listeners of one process.
const LISTENERS_MAX: usize = 64;
/// The longest error that is shown: it quotes a line of the file.
const ERROR_CHARACTERS_MAX: usize = 500;
/// The longest deadline in seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// The largest number of pipes; each takes two descriptors and up to 256 KiB of the kernel's memory.
const PIPES_MAX: usize = 4096;

/// A listener as the file describes it.
#[derive(Debug)]
pub(crate) struct ListenerConfig {
    /// The settings that a reload cannot change.
    pub(crate) fixed: FixedSettings,
    pub(crate) routes: RouteTable,
    pub(crate) route_count: usize,
}

/// The settings of a listener that only a restart changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FixedSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) limits: PassLimits,
    connections: AdmissionLimits,
    proxies: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    listener: Vec<ListenerFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenerFile {
    #[serde(rename = "kind")]
    _kind: ListenerKind,
    listen: String,
    #[serde(default)]
    connections: ConnectionsFile,
    #[serde(default)]
    limits: LimitsFile,
    #[serde(default)]
    route: Vec<RouteFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListenerKind {
    Pass,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionsFile {
    max: Option<u32>,
    per_address: Option<u32>,
    reserved: Option<u32>,
    #[serde(default)]
    proxy_protocol_from: Vec<IpAddr>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    hello_s: Option<u64>,
    connect_s: Option<u64>,
    retry_s: Option<u64>,
    idle_s: Option<u64>,
    half_closed_s: Option<u64>,
    drain_s: Option<u64>,
    pipes: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteFile {
    names: Vec<String>,
    targets: Vec<String>,
    #[serde(default)]
    send_proxy_header: bool,
}

/// Reads and checks the file.
pub(crate) fn read_config_file(path: &Path) -> Result<Vec<ListenerConfig>, CliError> {
    let text = read_text(path, FILE_BYTES_MAX, "the configuration of a gateway")?;
    parse_config(&text).map_err(|message| {
        let shown: String = message.chars().take(ERROR_CHARACTERS_MAX).collect();
        CliError::new(format!("{}: {shown}", path.display()))
            .with_hint("docs/gateway.md, \"Pass TLS through\", describes the file")
    })
}

fn parse_config(text: &str) -> Result<Vec<ListenerConfig>, String> {
    let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.listener.is_empty() || file.listener.len() > LISTENERS_MAX {
        let got = file.listener.len();
        return Err(format!("wanted 1 to {LISTENERS_MAX} tables [[listener]], got {got}"));
    }
    let numbered = file.listener.into_iter().enumerate();
    numbered
        .map(|(index, listener)| {
            listener.check().map_err(|message| format!("listener {}: {message}", index + 1))
        })
        .collect()
}

impl ListenerFile {
    fn check(self) -> Result<ListenerConfig, String> {
        let listen =
            parse_listen_address(&self.listen).map_err(|error| format!("listen: {error}"))?;
        let limits = self.limits.check()?;
        let connections = self.connections.check()?;
        let proxies = self.connections.proxy_protocol_from;
        let fixed = FixedSettings { listen, limits, connections, proxies };
        let numbered = self.route.into_iter().enumerate();
        let routes: Vec<PassRoute> = numbered
            .map(|(index, route)| {
                route.check().map_err(|message| format!("route {}: {message}", index + 1))
            })
            .collect::<Result<_, _>>()?;
        let route_count = routes.len();
        let routes = RouteTable::new(routes).map_err(|error| error.to_string())?;
        Ok(ListenerConfig { fixed, routes, route_count })
    }
}

impl FixedSettings {
    /// Places for the listener's connections.
    pub(crate) fn admission(&self) -> Admission {
        Admission::new(self.connections).with_trusted_proxies(&self.proxies)
    }
}

impl ConnectionsFile {
    fn check(&self) -> Result<AdmissionLimits, String> {
        let max = self.max.unwrap_or(CONNECTIONS);
        let wrong = |key: &str, wanted: String, got: usize| {
            Err(format!("connections.{key}: wanted {wanted}, got {got}"))
        };
        if !(1..=CONNECTIONS_MAX).contains(&max) {
            return wrong("max", format!("1 to {CONNECTIONS_MAX}"), max as usize);
        }
        let shared = AdmissionLimits::for_many_peers(max as usize);
        let or = |given: Option<u32>, default| given.map_or(default, |given| given as usize);
        let per_peer = or(self.per_address, shared.connections_per_peer);
        let reserved = or(self.reserved, shared.newcomer_reserve);
        let proxies = self.proxy_protocol_from.len();
        if !(1..=shared.connections).contains(&per_peer) {
            return wrong("per_address", format!("1 to connections.max, {max}"), per_peer);
        }
        if reserved >= shared.connections {
            return wrong("reserved", format!("less than connections.max, {max}"), reserved);
        }
        if proxies > PROXIES_MAX {
            return wrong(
                "proxy_protocol_from",
                format!("at most {PROXIES_MAX} addresses"),
                proxies,
            );
        }
        Ok(AdmissionLimits { connections_per_peer: per_peer, newcomer_reserve: reserved, ..shared })
    }
}

impl LimitsFile {
    fn check(&self) -> Result<PassLimits, String> {
        let default = PassLimits::default();
        let seconds = |name: &str, value: Option<u64>, default: Duration| match value {
            None => Ok(default),
            Some(value @ 1..=SECONDS_MAX) => Ok(Duration::from_secs(value)),
            Some(value) => {
                Err(format!("limits.{name}: wanted 1 to {SECONDS_MAX} seconds, got {value}"))
            }
        };
        let pipes = self.pipes.unwrap_or(default.pipes);
        if pipes > PIPES_MAX {
            return Err(format!("limits.pipes: wanted at most {PIPES_MAX}, got {pipes}"));
        }
        Ok(PassLimits {
            hello: seconds("hello_s", self.hello_s, default.hello)?,
            connect: seconds("connect_s", self.connect_s, default.connect)?,
            retry: seconds("retry_s", self.retry_s, default.retry)?,
            idle: seconds("idle_s", self.idle_s, default.idle)?,
            half_closed: seconds("half_closed_s", self.half_closed_s, default.half_closed)?,
            drain: seconds("drain_s", self.drain_s, default.drain)?,
            pipes,
        })
    }
}

impl RouteFile {
    fn check(self) -> Result<PassRoute, String> {
        let names = self
            .names
            .iter()
            .map(|name| NamePattern::parse(name).map_err(|error| format!("{name:?}: {error}")));
        let targets = self
            .targets
            .iter()
            .map(|target| PassTarget::parse(target).map_err(|error| error.to_string()));
        Ok(PassRoute {
            names: names.collect::<Result<_, _>>()?,
            targets: targets.collect::<Result<_, _>>()?,
            send_proxy_header: self.send_proxy_header,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: &str = "[[listener.route]]\nnames = ['a.example']\ntargets = ['127.0.0.1:1']\n";

    fn listener(more: &str) -> String {
        format!("[[listener]]\nkind = 'pass'\nlisten = '127.0.0.1:0'\n{more}\n{ROUTE}")
    }

    #[test]
    fn a_listener_has_the_documented_defaults() {
        let [config] = &parse_config(&listener("")).unwrap()[..] else { panic!("one listener") };
        assert_eq!(config.fixed.limits, PassLimits::default());
        assert_eq!(config.fixed.admission().limits().connections, 1024);
        assert_eq!(config.route_count, 1);
    }

    #[test]
    fn a_default_that_is_written_out_changes_nothing() {
        let written = "[listener.limits]\nidle_s = 3600\n[listener.connections]\nmax = 1024\nper_address = 256";
        let [short, long] =
            [listener(""), listener(written)].map(|text| parse_config(&text).unwrap());
        assert_eq!(short[0].fixed, long[0].fixed);
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
        assert_eq!(config[0].fixed.limits, wanted);
        let admission = config[0].fixed.admission().limits();
        assert_eq!(
            (admission.connections, admission.connections_per_peer, admission.newcomer_reserve),
            (9, 8, 1)
        );
    }

    #[test]
    fn what_the_file_does_not_say_or_says_wrongly_is_refused() {
        for (text, wanted) in [
            (String::new(), "wanted 1 to 64 tables [[listener]], got 0"),
            (
                "[[listener]]\nkind = 'pass'\nlisten = '127.0.0.1:0'".into(),
                "listener 1: routes: wanted at least one",
            ),
            (listener("").replace("pass", "terminate"), "unknown variant `terminate`"),
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
        ] {
            let error = parse_config(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}\n{error}");
        }
    }
}
