//! Limits on the connections of a server, and the address that each is counted for.

use std::net::IpAddr;

use confide_http::{Admission, AdmissionLimits};
use serde::Deserialize;

use crate::error::CliError;

/// Default of `--connections`.
const CONNECTIONS: u32 = 1024;
/// Largest `--connections`: beyond it the machine's own limits apply first.
const CONNECTIONS_MAX: u32 = 1_000_000;
/// Largest number of proxies in front of a server.
const PROXIES_MAX: usize = 64;

/// Limits on connections; every server that faces a network has them.
#[derive(clap::Args)]
pub(crate) struct ConnectionArgs {
    /// Largest number of open connections. A full server evicts idle ones, beginning with the address that
    /// has the most; if none is idle, it refuses new ones
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: u32,
    /// Largest number of connections of one IPv4 address or IPv6 /64; by default a quarter of --connections
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections_per_address: Option<u32>,
    /// Connections reserved for addresses that have none; by default an eighth of --connections
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=i64::from(CONNECTIONS_MAX)))]
    connections_reserved: Option<u32>,
    /// Proxies whose connections begin with a PROXY protocol header (version 1 or 2): the limits then apply
    /// to the header's source address. No header is read from other addresses
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    proxy_protocol_from: Vec<IpAddr>,
}

/// Checked limits on the connections of a server, and the proxies in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    limits: AdmissionLimits,
    proxies: Vec<IpAddr>,
}

impl ConnectionLimits {
    /// Places for the server's connections.
    pub(crate) fn admission(&self) -> Admission {
        Admission::new(self.limits).with_trusted_proxies(&self.proxies)
    }
}

/// The table of a file that sets the limits which [`ConnectionArgs`] sets by flags.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConnectionTable {
    max: Option<u32>,
    per_address: Option<u32>,
    reserved: Option<u32>,
    proxy_protocol_from: Vec<IpAddr>,
}

impl ConnectionTable {
    /// The limits of the table; the error begins with the key.
    pub(crate) fn check(self) -> Result<ConnectionLimits, String> {
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
        let proxies = self.proxy_protocol_from;
        if !(1..=shared.connections).contains(&per_peer) {
            return wrong("per_address", format!("1 to connections.max, {max}"), per_peer);
        }
        if reserved >= shared.connections {
            return wrong("reserved", format!("less than connections.max, {max}"), reserved);
        }
        if proxies.len() > PROXIES_MAX {
            let wanted = format!("at most {PROXIES_MAX} addresses");
            return wrong("proxy_protocol_from", wanted, proxies.len());
        }
        let limits = AdmissionLimits {
            connections_per_peer: per_peer,
            newcomer_reserve: reserved,
            ..shared
        };
        Ok(ConnectionLimits { limits, proxies })
    }
}

impl ConnectionArgs {
    /// The limits that the arguments set; an error if they contradict each other.
    pub(crate) fn admission(&self) -> Result<Admission, CliError> {
        self.limits().map(|limits| limits.admission())
    }

    /// Checks the limits that the arguments set.
    pub(crate) fn limits(&self) -> Result<ConnectionLimits, CliError> {
        let shared = AdmissionLimits::for_many_peers(self.connections as usize);
        let or = |given: Option<u32>, default| given.map_or(default, |given| given as usize);
        let limits = AdmissionLimits {
            connections_per_peer: or(self.connections_per_address, shared.connections_per_peer),
            newcomer_reserve: or(self.connections_reserved, shared.newcomer_reserve),
            ..shared
        };
        let unusable = |flag: &str, wanted: &str, got: usize| {
            CliError::new(format!("{flag}: wanted {wanted}, got {got}"))
        };
        let (all, raise) = (limits.connections, "raise --connections as well");
        if limits.connections_per_peer > all {
            let wanted = format!("at most --connections, {all}");
            let got = limits.connections_per_peer;
            return Err(unusable("--connections-per-address", &wanted, got).with_hint(raise));
        }
        if limits.newcomer_reserve >= all {
            let wanted = format!("less than --connections, {all}");
            let got = limits.newcomer_reserve;
            return Err(unusable("--connections-reserved", &wanted, got).with_hint(raise));
        }
        let proxies = self.proxy_protocol_from.len();
        if proxies > PROXIES_MAX {
            let wanted = format!("at most {PROXIES_MAX} addresses");
            return Err(unusable("--proxy-protocol-from", &wanted, proxies));
        }
        Ok(ConnectionLimits { limits, proxies: self.proxy_protocol_from.clone() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connections: ConnectionArgs,
    }

    fn limits(line: &[&str]) -> Result<AdmissionLimits, String> {
        let line = Line::try_parse_from(["server"].iter().chain(line))
            .map_err(|error| error.to_string())?;
        let admission =
            line.connections.admission().map_err(|_| "limits that do not fit together")?;
        Ok(admission.limits())
    }

    #[test]
    fn a_quarter_is_for_one_address_and_an_eighth_for_newcomers_unless_given() {
        let got = |line: &[&str]| {
            let limits = limits(line).expect("limits that fit together");
            (limits.connections, limits.connections_per_peer, limits.newcomer_reserve)
        };
        assert_eq!(got(&[]), (1024, 256, 128));
        assert_eq!(got(&["--connections", "64"]), (64, 16, 8));
        assert_eq!(got(&["--connections", "1"]), (1, 1, 0));
        let line = ["--connections", "9", "--connections-per-address", "9"];
        assert_eq!(got(&line), (9, 9, 1));
        assert_eq!(got(&["--connections-reserved", "0"]), (1024, 256, 0));
    }

    #[test]
    fn limits_that_do_not_fit_together_are_refused() {
        for line in [
            &["--connections", "8", "--connections-per-address", "9"][..],
            &["--connections", "8", "--connections-reserved", "8"],
            &["--connections", "0"],
            &["--connections-per-address", "0"],
            &["--proxy-protocol-from", "10.0.0.0/8"],
            &["--proxy-protocol-from", "host"],
        ] {
            assert!(limits(line).is_err(), "{line:?}");
        }
        assert!(limits(&["--proxy-protocol-from", "10.0.0.1,2001:db8::1"]).is_ok());
    }
}
