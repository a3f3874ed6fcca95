//! A machine to which connections are passed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::net::TcpStream;

/// The largest number of bytes of a host's name.
const HOST_BYTES_MAX: usize = 253;

/// An address or a host's name, with a port. A name is resolved for each connection.
#[derive(Debug)]
pub struct PassTarget {
    text: String,
    address: Option<SocketAddr>,
    created: Instant,
    /// Milliseconds after `created` until which the target is tried last, because a connection to it failed.
    avoided_until_ms: AtomicU64,
}

/// The text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("target: wanted HOST:PORT or ADDRESS:PORT, got {got:?}")]
pub struct TargetError {
    /// The text.
    pub got: String,
}

impl PassTarget {
    /// Parses `10.0.0.1:8443`, `[2001:db8::1]:8443` or `vm-1.internal:8443`.
    ///
    /// # Errors
    /// A [`TargetError`] if `text` has another form, or the port is 0.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let fault = || TargetError { got: text.to_owned() };
        let address: Option<SocketAddr> = text.parse().ok();
        let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
        let is_host = !host.is_empty()
            && host.len() <= HOST_BYTES_MAX
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0);
        if !is_port || (address.is_none() && !is_host) {
            return Err(fault());
        }
        let avoided_until_ms = AtomicU64::new(0);
        Ok(Self { text: text.to_owned(), address, created: Instant::now(), avoided_until_ms })
    }

    /// Connects within `deadline`. After a failure the target is avoided for `retry`.
    pub(crate) async fn connect(
        &self,
        deadline: Duration,
        retry: Duration,
    ) -> io::Result<TcpStream> {
        let connecting = async {
            match self.address {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect(&self.text).await,
            }
        };
        let connected = tokio::time::timeout(deadline, connecting).await;
        let outcome = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match &outcome {
            Ok(stream) => {
                // A TLS record is written whole; waiting for more would only delay it.
                let _ = stream.set_nodelay(true);
            }
            Err(_) => self.avoided_until_ms.store(self.elapsed_ms(retry), Ordering::Relaxed),
        }
        outcome
    }

    /// True while a recent failure to connect makes other targets preferable.
    pub(crate) fn is_avoided(&self) -> bool {
        self.avoided_until_ms.load(Ordering::Relaxed) > self.elapsed_ms(Duration::ZERO)
    }

    fn elapsed_ms(&self, more: Duration) -> u64 {
        u64::try_from((self.created.elapsed() + more).as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for PassTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_with_a_port_are_targets() {
        for text in ["10.0.0.1:8443", "[2001:db8::1]:443", "vm-1.internal:1", "localhost:65535"] {
            assert_eq!(PassTarget::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "vm-1",
            "vm-1:",
            ":443",
            "vm-1:0",
            "vm-1:65536",
            "vm-1:+1",
            "https://a:1",
            "::1:443",
            "a b:1",
        ] {
            assert!(PassTarget::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_target_is_avoided_for_a_while_after_a_failure() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let target = PassTarget::parse(&address.to_string()).unwrap();
        assert!(!target.is_avoided());
        let second = Duration::from_secs(1);
        target.connect(second, Duration::from_secs(3600)).await.unwrap_err();
        assert!(target.is_avoided());
        target.connect(second, Duration::ZERO).await.unwrap_err();
        assert!(!target.is_avoided(), "the time is over");
    }
}
