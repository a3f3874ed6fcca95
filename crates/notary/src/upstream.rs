//! TLS and HTTP to the named host, which may be hostile.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use confide_channel::UnixClock;
use confide_disclosure::{HttpVersion, TlsSession, certificate_chain_hash};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{
    ClientConfig, RootCertStore, client::Resumption, crypto::aws_lc_rs, pki_types::ServerName,
};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    error::ExchangeError,
    limits::{ADDRESSES_MAX, NotaryLimits, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX},
    policy::{NotaryPolicy, ServerRoots},
    request::FetchRequest,
    request_error::RequestError,
    target::FetchTarget,
};

/// Opens a new TLS session for each request, without resumption: a statement attests a handshake in
/// which the server has proved its certificate.
pub(crate) struct Upstream {
    config: Arc<ClientConfig>,
    policy: Arc<NotaryPolicy>,
}

/// The properties of a TLS session that a statement contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamSession {
    pub(crate) certificate_chain_hash: [u8; 32],
    pub(crate) tls: TlsSession,
    pub(crate) http: HttpVersion,
}

/// An answer whose body has not been read yet. Dropping it closes the connection.
pub(crate) struct UpstreamAnswer {
    pub(crate) session: UpstreamSession,
    pub(crate) response: Response<Incoming>,
    pub(crate) until: Instant,
    pub(crate) driver: ConnectionDriver,
}

impl Upstream {
    /// The validity of certificates is checked with `clock` (Unix seconds).
    pub(crate) fn new(
        policy: Arc<NotaryPolicy>,
        roots: &ServerRoots,
        clock: fn() -> u64,
    ) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        // A machine's own store may have certificates that webpki does not accept as roots.
        let (added, _ignored) = store.add_parsable_certificates(roots.certificates().to_vec());
        if added == 0 {
            return Err(rustls::Error::General("no root certificate is usable".into()));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(UnixClock(clock)))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), policy })
    }

    /// Sends the request and reads the head of the answer. The whole exchange has one deadline.
    pub(crate) async fn send(
        &self,
        request: &FetchRequest,
    ) -> Result<UpstreamAnswer, ExchangeError> {
        let limits = self.policy.limits();
        let until = Instant::now() + limits.exchange;
        let target = request.target();
        let left = |limit: Duration| limit.min(until.saturating_duration_since(Instant::now()));
        let dialling = self.connect_tcp(target, &limits);
        let exchange = limits.exchange;
        let stream = within_deadline(target, "accept a connection", exchange, dialling).await??;
        let tls = self.handshake(target, stream, left(limits.tls)).await?;
        let session = negotiated_session(&tls).ok_or_else(|| ExchangeError::Tls {
            host: target.host().into(),
            source: rustls::Error::General(
                "its version, key exchange or cipher suite is not supported".into(),
            ),
        })?;
        let message = build_request(request, session.http)?;
        let broken = |source| ExchangeError::Http { host: target.host().to_owned(), source };
        let sending = async {
            match session.http {
                HttpVersion::V11 => send_over_http1(tls, message).await,
                HttpVersion::V2 => send_over_http2(tls, message).await,
            }
        };
        let start = left(limits.response_start);
        let sent = within_deadline(target, "begin to answer", start, sending).await?;
        let (response, driver) = sent.map_err(broken)?;
        Ok(UpstreamAnswer { session, response, until, driver })
    }

    /// Resolves the name once and connects to an address that the policy allows.
    async fn connect_tcp(
        &self,
        target: &FetchTarget,
        limits: &NotaryLimits,
    ) -> Result<TcpStream, ExchangeError> {
        let host = || target.host().to_owned();
        let looking = tokio::net::lookup_host((target.host(), target.port()));
        let found = within_deadline(target, "resolve", limits.resolve, looking).await?;
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
                Ok(Err(source)) => last = Some(ExchangeError::Unreachable { host: host(), source }),
                Err(_) => last = Some(timeout_error(target, "accept a connection", limits.connect)),
            }
        }
        Err(last.unwrap_or_else(|| ExchangeError::AddressRefused { host: host() }))
    }

    async fn handshake(
        &self,
        target: &FetchTarget,
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
                    None => {
                        ExchangeError::Unreachable { host: target.host().into(), source: error }
                    }
                }
            },
        )
    }
}

/// Waits for one step of the server, at most until the deadline.
async fn within_deadline<T>(
    target: &FetchTarget,
    what: &'static str,
    deadline: Duration,
    step: impl Future<Output = T>,
) -> Result<T, ExchangeError> {
    timeout(deadline, step).await.map_err(|_| timeout_error(target, what, deadline))
}

pub(crate) fn timeout_error(
    target: &FetchTarget,
    what: &'static str,
    deadline: Duration,
) -> ExchangeError {
    ExchangeError::HostTimeout { host: target.host().into(), what, deadline }
}

/// The properties of the negotiated session; `None` if a statement cannot express them.
fn negotiated_session(stream: &TlsStream<TcpStream>) -> Option<UpstreamSession> {
    let tls = stream.get_ref().1;
    let chain = tls.peer_certificates()?;
    let version = tls.protocol_version()?.into();
    let group = tls.negotiated_key_exchange_group()?.name().into();
    let suite = tls.negotiated_cipher_suite()?.suite().into();
    Some(UpstreamSession {
        certificate_chain_hash: certificate_chain_hash(chain.iter().map(AsRef::as_ref)),
        tls: TlsSession::from_numbers(version, group, suite).ok()?,
        http: match tls.alpn_protocol() {
            Some(b"h2") => HttpVersion::V2,
            _ => HttpVersion::V11,
        },
    })
}

type SendResult = Result<(Response<Incoming>, ConnectionDriver), hyper::Error>;

async fn send_over_http1(
    stream: TlsStream<TcpStream>,
    message: Request<Full<Bytes>>,
) -> SendResult {
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(RESPONSE_FIELDS_MAX)
        .max_header_size(RESPONSE_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = ConnectionDriver::start(connection);
    let response = sender.send_request(message).await?;
    Ok((response, driver))
}

async fn send_over_http2(
    stream: TlsStream<TcpStream>,
    message: Request<Full<Bytes>>,
) -> SendResult {
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(RESPONSE_HEAD_BYTES_MAX as u32)
        .handshake(TokioIo::new(stream))
        .await?;
    let driver = ConnectionDriver::start(connection);
    let response = sender.send_request(message).await?;
    Ok((response, driver))
}

/// Builds the request. In HTTP/1.1 its target is the path, and the host is in the `host` field, as
/// in the transcript. In HTTP/2 the host is in `:authority`, and there is no `host` field.
fn build_request(
    request: &FetchRequest,
    http: HttpVersion,
) -> Result<Request<Full<Bytes>>, RequestError> {
    let mut message = Request::new(Full::new(Bytes::copy_from_slice(request.body())));
    *message.method_mut() = request.method().clone();
    *message.headers_mut() = request.header_map()?;
    let target = request.target();
    *message.uri_mut() = match http {
        HttpVersion::V11 => parse_uri(target.path())?,
        HttpVersion::V2 => {
            message.headers_mut().remove(http::header::HOST);
            parse_uri(&target.to_string())?
        }
    };
    Ok(message)
}

/// Parses a part of a URL that was parsed before. A failure is an error: a default such as `/`
/// would be another request.
fn parse_uri(text: &str) -> Result<Uri, RequestError> {
    text.parse().map_err(|_| RequestError::Url { got: "an address that HTTP cannot send".into() })
}

/// The task that drives a connection; it is aborted when this is dropped.
pub(crate) struct ConnectionDriver(JoinHandle<()>);

impl ConnectionDriver {
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

impl Drop for ConnectionDriver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_an_error_and_not_another_request() {
        for text in ["", "a b", "/a b", "https://", "/a\0"] {
            assert!(matches!(parse_uri(text), Err(RequestError::Url { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_message_has_the_requests_path_and_fields_in_either_version() {
        let fields = vec![("accept".into(), "*/*".into())];
        let url = "https://h:8443/v1?q=1";
        let request = FetchRequest::new("POST", url, fields, b"{}".to_vec(), [0; 32]).unwrap();
        let one = build_request(&request, HttpVersion::V11).unwrap();
        assert_eq!((one.uri().to_string().as_str(), one.method().as_str()), ("/v1?q=1", "POST"));
        assert_eq!(one.headers()["host"], "h:8443");
        let two = build_request(&request, HttpVersion::V2).unwrap();
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
