//! HTTP proxies that open connections for others (RFC 9110 section 9.3.6), as the environment names
//! them.

use std::{io, net::IpAddr};

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{endpoint::Endpoint, error::ClientError};

/// The longest head of a proxy's answer, in bytes, and the largest number of its fields.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 64;
const WANTED: &str = "http://[USER:PASSWORD@]HOST[:PORT]";

/// A proxy between this end and the endpoint. It sees the endpoint's name and encrypted bytes.
#[derive(Clone, Debug)]
pub struct HttpProxy {
    /// `HOST:PORT`.
    address: String,
    /// The value of `Proxy-Authorization`.
    credentials: Option<HeaderValue>,
}

impl HttpProxy {
    /// The proxy to an endpoint by `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, or their lower-case
    /// forms; `None` if there is none, or if the endpoint is on this machine.
    ///
    /// # Errors
    /// [`ClientError::Url`] for a proxy of another kind than `http://`.
    pub fn from_environment(endpoint: &Endpoint) -> Result<Option<Self>, ClientError> {
        Self::find(&Matcher::from_env(), endpoint)
    }

    fn find(rules: &Matcher, endpoint: &Endpoint) -> Result<Option<Self>, ClientError> {
        let is_loopback = match endpoint.host().parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => endpoint.host() == "localhost",
        };
        let target = format!("https://{endpoint}/").parse::<Uri>();
        let found = target.ok().filter(|_| !is_loopback).and_then(|uri| rules.intercept(&uri));
        let Some(found) = found else { return Ok(None) };
        let uri = found.uri();
        let bad = |got: String| ClientError::Url { url: uri.to_string(), wanted: WANTED, got };
        if uri.scheme_str() != Some("http") {
            return Err(bad(format!("scheme `{}`", uri.scheme_str().unwrap_or_default())));
        }
        let host = uri.host().ok_or_else(|| bad("no host".into()))?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        Ok(Some(Self { address, credentials: found.basic_auth().cloned() }))
    }

    /// Host and port of the proxy.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens a connection through the proxy to `target` (`HOST:PORT`). The caller has the deadline.
    pub(crate) async fn open(&self, target: &str) -> Result<TcpStream, ClientError> {
        let failed = |source| ClientError::Dial { target: self.address.clone(), source };
        let mut stream = TcpStream::connect(&self.address).await.map_err(failed)?;
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(credentials) = &self.credentials {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(credentials.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await.map_err(failed)?;
        self.read_answer(&mut stream, target).await?;
        Ok(stream)
    }

    /// Reads the head of the proxy's answer, behind which nothing may follow: in TLS the client speaks
    /// first.
    async fn read_answer(&self, stream: &mut TcpStream, target: &str) -> Result<(), ClientError> {
        let refused = |got: String| ClientError::Proxy {
            proxy: self.address.clone(),
            target: target.into(),
            got,
        };
        let failed = |source| ClientError::Dial { target: self.address.clone(), source };
        let mut head = Vec::with_capacity(1024);
        loop {
            let room = (HEAD_BYTES_MAX - head.len()) as u64;
            let read = (&mut *stream).take(room).read_buf(&mut head).await.map_err(failed)?;
            if read == 0 && room > 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
            let mut answer = httparse::Response::new(&mut fields);
            let parsed = answer.parse(&head).map_err(|error| refused(error.to_string()))?;
            match (parsed, answer.code) {
                (httparse::Status::Partial, _) if head.len() < HEAD_BYTES_MAX => {}
                (httparse::Status::Partial, _) => return Err(refused("too long a head".into())),
                (httparse::Status::Complete(end), Some(200..=299)) if end == head.len() => {
                    return Ok(());
                }
                (httparse::Status::Complete(_), Some(200..=299)) => {
                    return Err(refused("bytes before the handshake".into()));
                }
                (httparse::Status::Complete(_), code) => {
                    return Err(refused(format!("status {}", code.unwrap_or_default())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn find(proxy: &str, exempt: &str, endpoint: &str) -> Result<Option<HttpProxy>, ClientError> {
        let rules = Matcher::builder().https(proxy.to_owned()).no(exempt.to_owned()).build();
        HttpProxy::find(&rules, &Endpoint::parse(endpoint).unwrap())
    }

    #[test]
    fn the_environment_names_a_proxy_for_other_machines() {
        let found = find("http://u:p@proxy.example:3128", "", "https://far.example").unwrap();
        let found = found.unwrap();
        assert_eq!(found.address(), "proxy.example:3128");
        assert_eq!(found.credentials.as_ref().unwrap(), "Basic dTpw");
        assert!(!format!("{found:?}").contains("dTpw"), "{found:?}");
        assert_eq!(find("p", "", "https://[2001:db8::1]").unwrap().unwrap().address(), "p:80");
        for (exempt, endpoint) in [
            ("far.example", "https://a.far.example"),
            ("10.0.0.0/8", "https://10.1.2.3:8443"),
            ("", "https://127.0.0.1:8443"),
            ("", "https://[::1]:8443"),
            ("", "https://localhost"),
        ] {
            assert!(find("http://p:1", exempt, endpoint).unwrap().is_none(), "{endpoint}");
        }
        for proxy in ["https://p:1", "socks5://p:1"] {
            let refused = find(proxy, "", "https://far.example").unwrap_err();
            assert!(matches!(refused, ClientError::Url { .. }), "{proxy}: {refused}");
        }
    }

    async fn open_at(answer: String) -> (Result<TcpStream, ClientError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            // A client that has seen enough may be gone.
            let _ = stream.write_all(answer.as_bytes()).await;
            String::from_utf8(request).unwrap()
        };
        let credentials = Some(HeaderValue::from_static("Basic dTpw"));
        let proxy = HttpProxy { address, credentials };
        tokio::join!(proxy.open("far.example:443"), serving)
    }

    #[tokio::test]
    async fn a_connection_through_a_proxy_begins_after_its_answer() {
        let (opened, request) = open_at("HTTP/1.1 200 Connection established\r\n\r\n".into()).await;
        opened.unwrap();
        let wanted = "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\
                      Proxy-Authorization: Basic dTpw\r\n\r\n";
        assert_eq!(request, wanted);
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_or_talks_too_much_is_an_error() {
        for (answer, got) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".into(), "status 407"),
            ("HTTP/1.1 200 OK\r\n\r\nx".into(), "before the handshake"),
            ("SSH-2.0\r\n\r\n".into(), ""),
            (format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)), "too long"),
        ] {
            let refused = open_at(answer).await.0.unwrap_err();
            assert!(matches!(refused, ClientError::Proxy { .. }), "{refused}");
            assert!(refused.to_string().contains(got), "{refused}");
        }
        let ended = open_at("HTTP/1.1 200".into()).await.0.unwrap_err();
        assert!(matches!(ended, ClientError::Dial { .. }), "{ended}");
    }
}
