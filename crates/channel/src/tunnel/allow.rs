//! The targets that a proxy may reach.

use std::{collections::BTreeSet, net::Ipv6Addr};

use crate::error::{ChannelError, TunnelError};

/// The longest target in bytes: a DNS name, with brackets and a port.
const TARGET_BYTES_MAX: usize = 255 + 8;

/// Targets as `HOST:PORT`, compared exactly, except for letter case and the spelling of IPv6
/// addresses. There are no patterns: a range or a wildcard could open the proxy's network to its
/// clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(BTreeSet<String>);

impl AllowList {
    /// Makes a list of `HOST:PORT` targets, with IPv6 addresses in brackets.
    ///
    /// # Errors
    /// [`TunnelError::Target`] for the first target that is not a host and a port.
    pub fn new<T: AsRef<str>>(targets: impl IntoIterator<Item = T>) -> Result<Self, ChannelError> {
        let targets = targets.into_iter().map(|target| normalise_target(target.as_ref()));
        Ok(Self(targets.collect::<Result<_, _>>()?))
    }

    /// Whether `target` is on the list.
    pub fn contains(&self, target: &str) -> bool {
        normalise_target(target).is_ok_and(|target| self.0.contains(&target))
    }

    /// The targets, in order.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Converts a target to the form in which targets are compared and dialled.
pub(crate) fn normalise_target(target: &str) -> Result<String, TunnelError> {
    let unusable = || TunnelError::Target { target: target.chars().take(100).collect() };
    if target.len() > TARGET_BYTES_MAX {
        return Err(unusable());
    }
    let (host, port) = target.rsplit_once(':').ok_or_else(unusable)?;
    // `parse` alone would also accept a sign.
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port != 0);
    let port = port.ok_or_else(unusable)?;
    let host = host.to_ascii_lowercase();
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        // Formatted again, because an IPv6 address has many spellings.
        Some(address) => {
            let address: Ipv6Addr = address.parse().map_err(|_| unusable())?;
            Ok(format!("[{address}]:{port}"))
        }
        None if is_host(&host) => Ok(format!("{host}:{port}")),
        None => Err(unusable()),
    }
}

fn is_host(host: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !host.is_empty() && host.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_host_and_port_is_allowed() {
        let list = AllowList::new(["Model.Example:443", "[0::1]:8443", "127.0.0.1:1"]).unwrap();
        let same = [
            "model.example:443",
            "MODEL.example:0443",
            "[::1]:8443",
            "[0:0:0:0:0:0:0:1]:8443",
            "127.0.0.1:1",
        ];
        for target in same {
            assert!(list.contains(target), "{target}");
        }
        let others = [
            "model.example:444",
            "model.example",
            "xmodel.example:443",
            "model.example.:443",
            "model.example:443:443",
            "::1:8443",
            "[::1%eth0]:8443",
            "127.1:1",
            "127.0.0.1:01 ",
            "127.0.0.2:1",
            "",
        ];
        for target in others {
            assert!(!list.contains(target), "{target}");
        }
    }

    #[test]
    fn entries_that_are_no_targets_are_errors() {
        for entry in ["host", "host:0", "host:65536", ":1", "a b:1", "*.example:1", "h:+1"] {
            let result = AllowList::new([entry]);
            let is_target_error =
                matches!(result, Err(ChannelError::Tunnel(TunnelError::Target { .. })));
            assert!(is_target_error, "{entry}");
        }
    }
}
