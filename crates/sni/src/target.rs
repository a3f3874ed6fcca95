//! A machine to which connections are passed.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use confide_http::SingleFlight;
use tokio::{net::TcpStream, runtime::Handle};

/// The largest number of bytes of a host's name.
const HOST_BYTES_MAX: usize = 253;
/// The time for which the addresses of a name are used again.
const RESOLVED_FOR: Duration = Duration::from_secs(5);

/// The addresses of a name.
type Addresses = Arc<[SocketAddr]>;

/// An address or a host's name, with a port. A name is looked up once for all connections that wait for it.
#[derive(Debug)]
pub struct PassTarget {
    text: String,
    address: Option<SocketAddr>,
    lookups: Arc<SingleFlight<(), Result<Addresses, io::ErrorKind>>>,
    resolved: Mutex<Option<(Instant, Addresses)>>,
    created: Instant,
    has_failed: AtomicBool,
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
        let is_port = port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0);
        if !is_port || (address.is_none() && !is_host_name(host)) {
            return Err(fault());
        }
        Ok(Self {
            text: text.to_owned(),
            address,
            lookups: SingleFlight::new(),
            resolved: Mutex::new(None),
            created: Instant::now(),
            has_failed: AtomicBool::new(false),
            avoided_until_ms: AtomicU64::new(0),
        })
    }

    /// Connects within `deadline`. After a failure of the target it is avoided for `retry`.
    pub(crate) async fn connect(
        &self,
        deadline: Duration,
        retry: Duration,
    ) -> io::Result<TcpStream> {
        let connecting = async {
            match self.address {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect(&*self.resolve().await?).await,
            }
        };
        let connected = tokio::time::timeout(deadline, connecting).await;
        let outcome = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match &outcome {
            Ok(stream) => {
                // A TLS record is written whole; waiting for more would only delay it.
                let _ = stream.set_nodelay(true);
                if self.has_failed.swap(false, Ordering::Relaxed) {
                    tracing::warn!(address = %self, "a target accepts connections again");
                }
            }
            Err(error) if is_out_of_descriptors(error) => {}
            Err(error) => {
                self.avoided_until_ms.store(self.elapsed_ms(retry), Ordering::Relaxed);
                if !self.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(address = %self, %error, "cannot connect to a target");
                }
            }
        }
        outcome
    }

    /// Looks the name up, unless that was done in the last seconds. A lookup that outlives its callers is not repeated
    /// meanwhile, so that a silent name server costs one thread for each target.
    async fn resolve(&self) -> io::Result<Addresses> {
        if let Some((since, addresses)) = &*self.lock_resolved()
            && since.elapsed() < RESOLVED_FOR
        {
            return Ok(addresses.clone());
        }
        let text = self.text.clone();
        let lookup = || async move {
            let found = tokio::net::lookup_host(&text).await.map_err(|error| error.kind())?;
            Ok(found.collect::<Addresses>())
        };
        let lookup = self.lookups.start(&Handle::current(), &(), lookup).outcome().await;
        let addresses = lookup.unwrap_or(Err(io::ErrorKind::Other))?;
        *self.lock_resolved() = Some((Instant::now(), addresses.clone()));
        Ok(addresses)
    }

    fn lock_resolved(&self) -> MutexGuard<'_, Option<(Instant, Addresses)>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while a recent failure to connect makes other targets preferable. Once that time is over, the target is
    /// given to one connection, which finds out, and avoided by the others for `probe`.
    pub(crate) fn is_avoided(&self, probe: Duration) -> bool {
        if !self.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        let until = self.avoided_until_ms.load(Ordering::Relaxed);
        if until > self.elapsed_ms(Duration::ZERO) {
            return true;
        }
        let next = self.elapsed_ms(probe).max(until + 1);
        let order = Ordering::Relaxed;
        self.avoided_until_ms.compare_exchange(until, next, order, order).is_err()
    }

    fn elapsed_ms(&self, more: Duration) -> u64 {
        u64::try_from((self.created.elapsed() + more).as_millis()).unwrap_or(u64::MAX)
    }
}

/// True for names whose last label is not a number, which would be a mistyped address.
fn is_host_name(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    !host.is_empty()
        && host.len() <= HOST_BYTES_MAX
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// True if the process or the system has no descriptor left, for which no target can be blamed (errno(3), Linux).
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

impl fmt::Display for PassTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn addresses_and_names_with_a_port_are_targets() {
        for text in ["10.0.0.1:8443", "[2001:db8::1]:443", "vm-1.internal:1", "localhost:65535"] {
            assert_eq!(PassTarget::parse(text).unwrap().to_string(), text);
        }
        let wrong = ["", "vm-1", "vm-1:", ":443", "vm-1:0", "vm-1:65536", "vm-1:+1", "https://a:1"];
        for text in wrong.iter().chain(&["::1:443", "a b:1", "256.1.1.1:80", "1:1"]) {
            assert!(PassTarget::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_failed_target_is_avoided_for_a_while_and_then_tried_by_one_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let target = PassTarget::parse(&address.to_string()).unwrap();
        assert!(!target.is_avoided(SECOND));
        target.connect(SECOND, 3600 * SECOND).await.unwrap_err();
        assert!(target.is_avoided(SECOND));
        target.connect(SECOND, Duration::ZERO).await.unwrap_err();
        let probe = 3600 * SECOND;
        assert!(!target.is_avoided(probe), "the time is over: one connection tries");
        assert!(target.is_avoided(probe), "the others do not");
        let _listener = std::net::TcpListener::bind(address).unwrap();
        target.connect(SECOND, SECOND).await.unwrap();
        assert!(!target.is_avoided(probe), "it answers again");
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_several_connections() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = PassTarget::parse(&format!("localhost:{port}")).unwrap();
        assert!(target.lock_resolved().is_none());
        target.connect(10 * SECOND, SECOND).await.unwrap();
        let first = target.lock_resolved().clone().expect("it is kept");
        target.connect(10 * SECOND, SECOND).await.unwrap();
        let second = target.lock_resolved().clone().expect("it is kept");
        assert_eq!(first.0, second.0, "the second connection looked nothing up");
    }
}
