//! TLS and HTTP to the named host: every answer here comes from a server that may be hostile.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use confide_disclosure::{HttpVersion, TlsSession, certificate_chain_hash};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{ServerName, UnixTime},
    time_provider::TimeProvider,
};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    error::ExchangeError,
    limits::{ADDRESSES_MAX, Limits, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX},
    policy::{NotaryPolicy, Roots},
    request::FetchRequest,
    request_error::RequestError,
    target::Target,
};

/// Opens one TLS session for one request, each time again: a statement tells of a handshake in which
/// the server has shown its certificate, and nothing is resumed.
pub(crate) struct Upstream {
    config: Arc<ClientConfig>,
    policy: Arc<NotaryPolicy>,
}

/// The facts of a TLS session that a statement tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) certificate_chain_hash: [u8; 32],
    pub(crate) tls: TlsSession,
    pub(crate) http: HttpVersion,
}

/// An answer whose body is still to come. Dropping it ends the connection.
pub(crate) struct Answer {
    pub(crate) session: Session,
    pub(crate) response: Response<Incoming>,
    pub(crate) until: Instant,
    pub(crate) driver: Driver,
}

impl Upstream {
    /// `clock` (Unix seconds) judges the validity of certificates.
    pub(crate) fn new(
        policy: Arc<NotaryPolicy>,
        roots: &Roots,
        clock: fn() -> u64,
    ) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        // A machine's own store may hold certificates that are no roots for webpki.
        let (added, _ignored) = store.add_parsable_certificates(roots.certificates().to_vec());
        if added == 0 {
            return Err(rustls::Error::General("no root certificate is usable".into()));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Clock(clock)))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), policy })
    }

    /// Sends the request, gives the head of the answer. The whole exchange has one deadline.
    pub(crate) async fn send(&self, request: &FetchRequest) -> Result<Answer, ExchangeError> {
        let limits = self.policy.limits();
        let until = Instant::now() + limits.exchange;
        let target = request.target();
        let left = |limit: Duration| limit.min(until.saturating_duration_since(Instant::now()));
        let dialling = self.dial(target, &limits);
        let exchange = limits.exchange;
        let stream = within_deadline(target, "take a connection", exchange, dialling).await??;
        let tls = self.shake(target, stream, left(limits.tls)).await?;
        let session = session(&tls).ok_or_else(|| ExchangeError::Tls {
            host: target.host().into(),
            source: rustls::Error::General("no statement speaks of such a session".into()),
        })?;
        let message = message(request, session.http)?;
        let broken = |source| ExchangeError::Http { host: target.host().to_owned(), source };
        let sending = async {
            match session.http {
                HttpVersion::V11 => over_http1(tls, message).await,
                HttpVersion::V2 => over_http2(tls, message).await,
            }
        };
        let start = left(limits.response_start);
        let sent = within_deadline(target, "begin to answer", start, sending).await?;
        let (response, driver) = sent.map_err(broken)?;
        Ok(Answer { session, response, until, driver })
    }

    /// Connects to the very address that was judged: a name is looked up once.
    async fn dial(&self, target: &Target, limits: &Limits) -> Result<TcpStream, ExchangeError> {
        let host = || target.host().to_owned();
        let looking = tokio::net::lookup_host((target.host(), target.port()));
        let found = within_deadline(target, "have its name found", limits.resolve, looking).await?;
        let unknown = |reason: String| ExchangeError::Resolve { host: host(), reason };
        let found: Vec<SocketAddr> = found.map_err(|error| unknown(error.to_string()))?.collect();
        if found.is_empty() {
            return Err(unknown("no address".into()));
        }
        let mut last = None;
        let allowed = found.into_iter().filter(|found| self.policy.may_dial(found.ip()));
        for address in allowed.take(ADDRESSES_MAX) {
            match timeout(limits.connect, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(source)) => last = Some(ExchangeError::Dial { host: host(), source }),
                Err(_) => last = Some(slow(target, "take a connection", limits.connect)),
            }
        }
        Err(last.unwrap_or_else(|| ExchangeError::Address { host: host() }))
    }

    async fn shake(
        &self,
        target: &Target,
        stream: TcpStream,
        deadline: Duration,
    ) -> Result<TlsStream<TcpStream>, ExchangeError> {
        let failed = |source| ExchangeError::Tls { host: target.host().into(), source };
        let name = ServerName::try_from(target.host().to_owned())
            .map_err(|_| failed(rustls::Error::UnsupportedNameType))?;
        let shaking = TlsConnector::from(self.config.clone()).connect(name, stream);
        within_deadline(target, "finish the TLS handshake", deadline, shaking).await?.map_err(
            |error| {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                match inner {
                    Some(tls) => failed(tls.clone()),
                    None => ExchangeError::Dial { host: target.host().into(), source: error },
                }
            },
        )
    }
}

/// Waits for one step of the server.
async fn within_deadline<T>(
    target: &Target,
    what: &'static str,
    deadline: Duration,
    step: impl Future<Output = T>,
) -> Result<T, ExchangeError> {
    timeout(deadline, step).await.map_err(|_| slow(target, what, deadline))
}

pub(crate) fn slow(target: &Target, what: &'static str, deadline: Duration) -> ExchangeError {
    ExchangeError::Slow { host: target.host().into(), what, deadline }
}

/// Returns what was negotiated; `None` for what a statement has no words for.
fn session(stream: &TlsStream<TcpStream>) -> Option<Session> {
    let tls = stream.get_ref().1;
    let chain = tls.peer_certificates()?;
    let version = tls.protocol_version()?.into();
    let group = tls.negotiated_key_exchange_group()?.name().into();
    let suite = tls.negotiated_cipher_suite()?.suite().into();
    Some(Session {
        certificate_chain_hash: certificate_chain_hash(chain.iter().map(AsRef::as_ref)),
        tls: TlsSession::from_numbers(version, group, suite).ok()?,
        http: match tls.alpn_protocol() {
            Some(b"h2") => HttpVersion::V2,
            _ => HttpVersion::V11,
        },
    })
}

type SendResult = Result<(Response<Incoming>, Driver), hyper::Error>;

async fn over_http1(stream: TlsStream<TcpStream>, message: Request<Full<Bytes>>) -> SendResult {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(RESPONSE_FIELDS_MAX)
        .max_header_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = Driver::start(connection);
    let response = sender.send_request(message).await?;
    Ok((response, driver))
}

async fn over_http2(stream: TlsStream<TcpStream>, message: Request<Full<Bytes>>) -> SendResult {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(RESPONSE_HEAD_BYTES_MAX as u32)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = Driver::start(connection);
    let response = sender.send_request(message).await?;
    Ok((response, driver))
}

/// With HTTP/1.1 the target stands as a path and the host in its field: the bytes are those of the
/// transcript. With HTTP/2 the host stands in `:authority`, and there is no `host` field.
fn message(
    request: &FetchRequest,
    http: HttpVersion,
) -> Result<Request<Full<Bytes>>, RequestError> {
    let mut message = Request::new(Full::new(Bytes::copy_from_slice(request.body())));
    *message.method_mut() = request.method().clone();
    *message.headers_mut() = request.header_map()?;
    let target = request.target();
    *message.uri_mut() = match http {
        HttpVersion::V11 => uri(target.path())?,
        HttpVersion::V2 => {
            message.headers_mut().remove(http::header::HOST);
            uri(&target.to_string())?
        }
    };
    Ok(message)
}

/// Reads an address that was read before. What cannot be read again is not sent: `/` would be
/// another request.
fn uri(text: &str) -> Result<Uri, RequestError> {
    text.parse().map_err(|_| RequestError::Url { got: "an address that HTTP cannot send".into() })
}

/// The task that moves a connection's bytes; it ends when this is dropped.
pub(crate) struct Driver(JoinHandle<()>);

impl Driver {
    fn start<C>(connection: C) -> Self
    where
        C: Future<Output = Result<(), hyper::Error>> + Send + 'static,
    {
        Self(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a server ended early");
            }
        }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The injected wall clock as rustls wants it.
#[derive(Debug)]
struct Clock(fn() -> u64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs((self.0)())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_an_error_and_not_another_request() {
        for text in ["", "a b", "/a b", "https://", "/a\0"] {
            assert!(matches!(uri(text), Err(RequestError::Url { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_message_has_the_requests_path_and_fields_in_either_version() {
        let fields = vec![("accept".into(), "*/*".into())];
        let url = "https://h:8443/v1?q=1";
        let request = FetchRequest::new("POST", url, fields, b"{}".to_vec(), [0; 32]).unwrap();
        let one = message(&request, HttpVersion::V11).unwrap();
        assert_eq!((one.uri().to_string().as_str(), one.method().as_str()), ("/v1?q=1", "POST"));
        assert_eq!(one.headers()["host"], "h:8443");
        let two = message(&request, HttpVersion::V2).unwrap();
        assert_eq!(two.uri().to_string(), url);
        assert!(!two.headers().contains_key("host"));
        for message in [one, two] {
            assert_eq!(
                (&message.headers()["accept"], message.headers().len() > 1),
                (&"*/*".parse().unwrap(), true)
            );
        }
    }
}
