//! One attested connection, and HTTP/1.1 on it.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use confide_channel::{Binding, Client, ClientOptions, SessionVersion};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    appraiser::{PeerAppraisal, PolicyAppraiser},
    error::WebError,
    provider,
};

/// The most bytes of an answer's status line and header fields.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Fields that the connection sets itself.
const OWN_FIELDS: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// An open connection, which takes one request at a time.
#[derive(Debug)]
pub struct Session {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

/// A request of the host.
#[derive(Debug)]
pub struct WebRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The request target: a path, with a query if any.
    pub target: &'a str,
    /// Names and values of header fields.
    pub fields: Vec<(String, String)>,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// Opens a connection over `stream` to the server `name`, appraises it and starts HTTP. Returns the
/// session, the verdict and the task that moves its bytes, which the caller runs. The caller drops
/// the future at its deadline. Without `version` all versions of session binding are offered.
///
/// # Errors
/// [`WebError::Channel`] if the channel is not opened or the evidence not accepted,
/// [`WebError::Http`] if HTTP does not start, [`WebError::Usage`] for an unusable authority.
pub async fn open<S>(
    stream: S,
    name: &str,
    authority: &str,
    binding: Binding,
    version: Option<SessionVersion>,
    appraiser: Arc<PolicyAppraiser>,
) -> Result<(Session, PeerAppraisal, impl Future<Output = ()> + use<S>), WebError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = HeaderValue::from_str(authority);
    let host = host.map_err(|_| WebError::Usage(format!("server address {authority:?}")))?;
    // The host keeps the deadline; this one is not measured.
    let options = ClientOptions { binding, deadline: Duration::ZERO };
    let client = Client::with_provider(options, appraiser, provider::provider());
    let client = client.and_then(|client| match version {
        Some(version) => client.with_session_versions(&[version]),
        None => Ok(client),
    });
    let client = client.map_err(WebError::Channel)?;
    let attested = client.connect(name, stream).await.map_err(WebError::Channel)?;
    let (stream, appraised, _timings) = attested.into_parts();
    let (sender, connection) = http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(WebError::Http)?;
    let moving = async {
        // The request or the body that it interrupts has the error too.
        let _ = connection.await;
    };
    Ok((Session { sender, host }, appraised, moving))
}

impl Session {
    /// Sends a request and returns the head of the answer. The body has to be read to its end before
    /// the next request.
    ///
    /// # Errors
    /// [`WebError::Usage`] for a request that cannot be sent, [`WebError::Http`] if the connection
    /// fails.
    pub async fn send(&mut self, request: WebRequest<'_>) -> Result<Response<Incoming>, WebError> {
        let request = self.build_request(request)?;
        self.sender.ready().await.map_err(WebError::Http)?;
        self.sender.send_request(request).await.map_err(WebError::Http)
    }

    /// Whether the connection can take another request.
    pub fn is_usable(&self) -> bool {
        !self.sender.is_closed()
    }

    fn build_request(&self, request: WebRequest<'_>) -> Result<Request<Full<Bytes>>, WebError> {
        let usage = |what: &str, got: &str| WebError::Usage(format!("{what} {got:?}"));
        let WebRequest { method, target, fields, body } = request;
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|_| usage("request method", request.method))?;
        if method == Method::CONNECT || !target.starts_with('/') {
            return Err(usage("request target", target));
        }
        let mut built = Request::builder().method(method).uri(target);
        let mut headers = HeaderMap::new();
        for (name, value) in &fields {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|_| usage("header field", "its name"))?;
            if OWN_FIELDS.contains(&name) {
                return Err(usage("header field", name.as_str()));
            }
            let value = HeaderValue::from_bytes(&latin1(value)?);
            let value = value.map_err(|_| usage("value of header field", name.as_str()))?;
            headers.append(name, value);
        }
        headers.insert(header::HOST, self.host.clone());
        if let Some(all) = built.headers_mut() {
            *all = headers;
        }
        built.body(Full::from(body)).map_err(|_| usage("request target", target))
    }
}

/// The bytes of a field's value, which JavaScript holds as one character for each byte.
fn latin1(value: &str) -> Result<Vec<u8>, WebError> {
    let unusable = |_| WebError::Usage("header field with characters beyond ISO 8859-1".into());
    value.chars().map(|c| u8::try_from(u32::from(c)).map_err(unusable)).collect()
}

/// The next piece of an answer's body; `None` at its end. Trailers are passed over.
///
/// # Errors
/// [`WebError::Http`] if the connection broke before the body's end.
pub async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, WebError> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(WebError::Http)?.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::carrier::carrier;

    fn session() -> Session {
        let (end, _host) = carrier();
        let handshake = pin!(http1::handshake(TokioIo::new(end)));
        let Poll::Ready(opened) = handshake.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("HTTP/1.1 starts without a byte");
        };
        Session { sender: opened.unwrap().0, host: HeaderValue::from_static("server.example") }
    }

    fn build(method: &str, target: &str, fields: &[(&str, &str)]) -> Result<String, WebError> {
        let fields = fields.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let fields = fields.collect();
        let request = WebRequest { method, target, fields, body: b"body".to_vec() };
        session().build_request(request).map(|built| format!("{built:?}"))
    }

    #[test]
    fn a_request_has_the_servers_name_and_the_callers_fields() {
        let fields = [("accept", "text/event-stream"), ("x-name", "na\u{ef}ve")];
        let built = build("POST", "/v1/chat/completions?a=b", &fields).unwrap();
        for part in ["POST", "/v1/chat/completions?a=b", "server.example", "na\\xefve"] {
            assert!(built.contains(part), "{part}: {built}");
        }
    }

    #[test]
    fn requests_that_would_frame_or_address_otherwise_are_refused() {
        for (method, target, field) in [
            ("GET", "https://other.example/", ("accept", "*/*")),
            ("GET", "", ("accept", "*/*")),
            ("CONNECT", "/", ("accept", "*/*")),
            ("GE T", "/", ("accept", "*/*")),
            ("GET", "/a b", ("accept", "*/*")),
            ("GET", "/", ("content-length", "1")),
            ("GET", "/", ("Transfer-Encoding", "chunked")),
            ("GET", "/", ("host", "other.example")),
            ("GET", "/", ("a b", "value")),
            ("GET", "/", ("name", "two\r\nlines")),
            ("GET", "/", ("name", "\u{20ac}")),
        ] {
            let refused = build(method, target, &[field]);
            assert!(matches!(refused, Err(WebError::Usage(_))), "{method} {target} {field:?}");
        }
    }
}
