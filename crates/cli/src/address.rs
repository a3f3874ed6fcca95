//! Addresses to listen at, as arguments give them.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads `ADDR:PORT` or `localhost:PORT`, for `clap`. `localhost` is 127.0.0.1 without asking a resolver,
/// which could name another machine.
///
/// # Errors
/// The wanted form, with the likely spelling of the address.
pub(crate) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = |text: &str| text.parse::<u16>().ok();
    let (host, after) = text.rsplit_once(':').unwrap_or(("", text));
    match port(after) {
        Some(port) if host.eq_ignore_ascii_case("localhost") => {
            Ok((Ipv4Addr::LOCALHOST, port).into())
        }
        Some(port) if host.is_empty() => {
            Err(format!("wanted ADDR:PORT, such as 127.0.0.1:{port}: the address is missing"))
        }
        Some(port) => Err(format!(
            "wanted ADDR:PORT with an address of this machine, such as 127.0.0.1:{port}, or \
             localhost:{port}"
        )),
        None => Err("wanted ADDR:PORT, such as 127.0.0.1:8000, with a port from 0 to 65535".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_an_address_and_a_bare_port_is_answered_with_the_wanted_form() {
        for (text, wanted) in [
            ("localhost:8000", "127.0.0.1:8000"),
            ("LocalHost:0", "127.0.0.1:0"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:8000", "[::1]:8000"),
            ("0.0.0.0:8000", "0.0.0.0:8000"),
        ] {
            assert_eq!(parse_listen_address(text).unwrap().to_string(), wanted);
        }
        for (text, hint) in [
            ("8000", "127.0.0.1:8000"),
            (":8000", "127.0.0.1:8000"),
            ("models.example:8000", "localhost:8000"),
            ("localhost:99999", "from 0 to 65535"),
            ("127.0.0.1", "127.0.0.1:8000"),
            ("localhost", "127.0.0.1:8000"),
            ("", "127.0.0.1:8000"),
        ] {
            let error = parse_listen_address(text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
