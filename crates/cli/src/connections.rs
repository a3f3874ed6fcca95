//! Limits on the connections of a server, and the address that each is counted for.

use std::net::IpAddr;

use confide_http::{Admission, AdmissionLimits};

use crate::error::CliError;

/// Default of `--connections`.
pub(crate) const CONNECTIONS: u32 = 1024;
/// Largest `--connections`: beyond it the machine's own limits apply first.
pub(crate) const CONNECTIONS_MAX: u32 = 1_000_000;
/// Largest number of proxies in front of a server.
pub(crate) const PROXIES_MAX: usize = 64;

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

impl ConnectionArgs {
    /// The admission limits that the arguments set; an error if they contradict each other.
    pub(crate) fn admission(&self) -> Result<Admission, CliError> {
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
        Ok(Admission::new(limits).with_trusted_proxies(&self.proxy_protocol_from))
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
