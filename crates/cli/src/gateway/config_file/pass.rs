//! The tables of a listener of the kind `pass`.

use std::time::Duration;

use confide_sni::{NamePattern, PassLimits, PassRoute, PassTarget, RouteTable};
use serde::Deserialize;
use toml::Table;

use super::{table::parse_table, terminate_limits::check_seconds};

/// The largest number of pipes; each takes two descriptors and up to 256 KiB of the kernel's memory.
const PIPES_MAX: usize = 4096;

/// A listener that passes TLS through.
#[derive(Debug)]
pub(crate) struct PassConfig {
    pub(crate) limits: PassLimits,
    pub(crate) routes: RouteTable,
    pub(crate) route_count: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PassTable {
    #[serde(default)]
    limits: LimitsTable,
    #[serde(default)]
    route: Vec<RouteEntry>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
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
struct RouteEntry {
    names: Vec<String>,
    targets: Vec<String>,
    #[serde(default)]
    send_proxy_header: bool,
}

impl PassConfig {
    pub(super) fn parse(table: Table) -> Result<Self, String> {
        let PassTable { limits, route } = parse_table(table)?;
        let limits = limits.check()?;
        let numbered = route.into_iter().enumerate();
        let routes: Vec<PassRoute> = numbered
            .map(|(index, route)| {
                route.check().map_err(|message| format!("route {}: {message}", index + 1))
            })
            .collect::<Result<_, _>>()?;
        let route_count = routes.len();
        let routes = RouteTable::new(routes).map_err(|error| error.to_string())?;
        Ok(Self { limits, routes, route_count })
    }
}

impl LimitsTable {
    fn check(&self) -> Result<PassLimits, String> {
        let default = PassLimits::default();
        let seconds = |name: &str, value: Option<u64>, default: Duration| match value {
            None => Ok(default),
            Some(value) => check_seconds(name, value),
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

impl RouteEntry {
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
