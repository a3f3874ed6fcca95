//! The address of an upstream model server.

use confide_http::{HttpUrl, Scheme, uri_host};
use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery},
};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::{error::GatewayError, upstream_roots::UpstreamRoots};

const WANTED: &str = "http[s]://HOST[:PORT][/PATH] without user, query or fragment";

/// The address to which requests are proxied, and whether it is a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    /// The `Host` of requests: without the default port, and of an https upstream as it was given.
    host: HeaderValue,
    base_path: String,
    is_loopback: bool,
    /// The name that the certificate of an https upstream must have.
    server_name: Option<ServerName<'static>>,
    /// The roots that verify this certificate, once they have been read.
    roots: Option<UpstreamRoots>,
    /// Whether requests are sent over HTTP/2.
    speaks_http2: bool,
}

impl Upstream {
    /// Parses `http://HOST[:PORT][/PATH]`, or the same with `https`.
    ///
    /// `localhost` becomes `127.0.0.1`, so that no resolver decides whether it is loopback. The
    /// certificate of an https upstream must still have the name that was given. Such an upstream
    /// can be reached once its roots have been read
    /// ([`crate::GatewayConfiguration::read_upstream_roots`]).
    ///
    /// # Errors
    /// [`GatewayError::UpstreamUrl`] for another form, and [`GatewayError::UpstreamApiPath`] if the
    /// path ends with `/v1`.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let bad = |got: String| GatewayError::UpstreamUrl { url: text.into(), wanted: WANTED, got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.query().is_some() {
            return Err(bad("a query".into()));
        }
        let scheme = url.scheme();
        let base_path = url.path().trim_end_matches('/').to_owned();
        if let Some(base) = base_path.strip_suffix("/v1") {
            let port = url.explicit_port().map_or_else(String::new, |port| format!(":{port}"));
            let without = format!("{scheme}://{}{port}{base}", uri_host(url.host()));
            return Err(GatewayError::UpstreamApiPath { url: text.into(), without });
        }
        let server_name = match scheme {
            Scheme::Http => None,
            Scheme::Https => Some(
                ServerName::try_from(url.host().to_owned())
                    .map_err(|_| bad("a host that no certificate can name".into()))?,
            ),
        };
        let numeric = url.clone().with_numeric_localhost();
        let authority = numeric.authority().parse().map_err(|error| bad(format!("{error}")))?;
        let named = if scheme == Scheme::Https { &url } else { &numeric };
        let mut host = uri_host(named.host()).into_owned();
        if named.port() != scheme.default_port() {
            host = named.authority();
        }
        let host = HeaderValue::try_from(host).map_err(|error| bad(error.to_string()))?;
        let is_loopback = numeric.is_loopback();
        Ok(Self {
            scheme,
            authority,
            host,
            base_path,
            is_loopback,
            server_name,
            roots: None,
            speaks_http2: false,
        })
    }

    /// The same address, whose server is sent requests over HTTP/2. Without TLS the server has to
    /// know that (RFC 9113 section 3.3); with TLS it has to choose `h2`. WebSockets use HTTP/1.1.
    #[must_use]
    pub fn with_http2(mut self) -> Self {
        self.speaks_http2 = true;
        self
    }

    /// Whether the host is a numeric loopback address, so that the bytes stay on this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }

    /// The host and port.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The canonical form of the address: `SCHEME://HOST:PORT/PATH`, host in lower case.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.base_path)
    }

    /// Whether the upstream is reached over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// The name that the certificate of an https upstream must have.
    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    /// The roots of an https upstream, once they have been read.
    pub(crate) fn roots(&self) -> Option<&UpstreamRoots> {
        self.roots.as_ref()
    }

    pub(crate) fn set_roots(&mut self, roots: UpstreamRoots) {
        self.roots = Some(roots);
    }

    /// Whether requests are sent over HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.speaks_http2
    }

    /// The host of requests, as the authority of HTTP/2.
    pub(crate) fn request_authority(&self) -> Authority {
        // It was made from an authority.
        Authority::try_from(self.host.as_bytes()).unwrap_or_else(|_| self.authority.clone())
    }

    pub(crate) fn host_header(&self) -> HeaderValue {
        self.host.clone()
    }

    /// Converts a redirect to this upstream to a path at the gateway. The unchanged redirect would
    /// lead clients past the attested channel.
    pub(crate) fn path_of_redirect(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let rest = location.to_str().ok()?.strip_prefix(self.scheme.as_str())?;
        let rest = rest.strip_prefix("://")?;
        let hosts = [self.host.to_str().ok()?, self.authority.as_str()];
        let path = hosts.into_iter().find_map(|host| {
            let path = rest.strip_prefix(host)?.strip_prefix(&self.base_path)?;
            path.starts_with('/').then_some(path)
        })?;
        HeaderValue::from_str(path).ok()
    }

    /// The request target of a path and query at this upstream.
    pub(crate) fn target_for(&self, requested: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.base_path.is_empty() {
            return Ok(Uri::from(requested.clone()));
        }
        Ok(PathAndQuery::try_from(format!("{}{requested}", self.base_path))?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_are_loopback_by_number_count_as_loopback() {
        for (url, wanted) in [
            ("http://127.0.0.1:8000", true),
            ("http://LOCALHOST:8000", true),
            ("http://[::1]:8000/base", true),
            ("http://localhost.example.org:8000", false),
            ("http://127.0.0.1.example.org", false),
            ("http://10.0.0.1:8000", false),
            ("http://0.0.0.0:8000", false),
            ("https://localhost:8443", true),
            ("https://10.0.0.1", false),
        ] {
            assert_eq!(Upstream::parse(url).unwrap().is_loopback(), wanted, "{url}");
        }
    }

    #[test]
    fn an_upstream_is_written_in_one_way() {
        let one = Upstream::parse("http://LocalHost:80/").unwrap();
        let two = Upstream::parse("http://127.0.0.1").unwrap();
        assert_eq!(one, two);
        assert_eq!(one.url(), "http://127.0.0.1:80");
        assert_eq!(
            Upstream::parse("https://Model.Example/").unwrap().url(),
            "https://model.example:443"
        );
        let local = Upstream::parse("https://localhost:8443/base").unwrap();
        assert_eq!(local.url(), "https://127.0.0.1:8443/base");
    }

    #[test]
    fn the_host_of_an_https_upstream_is_the_name_in_its_certificate() {
        for (url, host, name) in [
            ("https://localhost:8443", "localhost:8443", "localhost"),
            ("https://model.example", "model.example", "model.example"),
            ("https://model.example:443/base", "model.example", "model.example"),
            ("https://[::1]:8443", "[::1]:8443", "::1"),
            ("https://10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ] {
            let upstream = Upstream::parse(url).unwrap();
            assert_eq!(upstream.host_header(), host, "{url}");
            assert_eq!(upstream.server_name().unwrap().to_str(), name, "{url}");
        }
        let plain = Upstream::parse("http://localhost:8000").unwrap();
        assert_eq!(plain.host_header(), "127.0.0.1:8000");
        assert!(plain.server_name().is_none());
    }

    #[test]
    fn a_redirect_to_the_upstream_becomes_a_path_and_another_one_stays() {
        for (url, location, wanted) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/a?b", Some("/a?b")),
            ("http://h/base", "http://h/base/a", Some("/a")),
            ("http://h/base", "http://h:80/base/a", Some("/a")),
            ("http://h/base", "http://h/basement", None),
            ("https://h", "https://h/a", Some("/a")),
            ("https://h", "https://h:443/a", Some("/a")),
            ("https://localhost:8443", "https://localhost:8443/a", Some("/a")),
            ("https://h", "https://h:8443/a", None),
            ("https://h", "https://h.example/a", None),
            ("https://h", "http://h/a", None),
            ("https://h", "/a", None),
        ] {
            let upstream = Upstream::parse(url).unwrap();
            let path = upstream.path_of_redirect(&HeaderValue::from_static(location));
            assert_eq!(
                path.as_ref().map(|path| path.to_str().unwrap()),
                wanted,
                "{url} {location}"
            );
        }
    }

    #[test]
    fn what_is_not_http_or_https_to_a_host_is_refused() {
        for url in [
            "ftp://h",
            "http://",
            "h:80",
            "http://u@h",
            "http://h/?q",
            "http://h/#f",
            "http://h:99999",
            "http://h:x",
            "http://h:0",
            "http://h:",
            "http://h:+80",
            "http://127.1",
            "https://h:x",
            "https://a..b",
        ] {
            let refused = Upstream::parse(url);
            assert!(matches!(refused, Err(GatewayError::UpstreamUrl { .. })), "{url}");
        }
    }

    #[test]
    fn the_address_that_openai_clients_are_given_is_refused_with_the_right_one() {
        for (url, wanted) in [
            ("http://h:80/v1", "http://h:80"),
            ("http://h:80/v1/", "http://h:80"),
            ("https://h/v1", "https://h"),
        ] {
            match Upstream::parse(url) {
                Err(GatewayError::UpstreamApiPath { without, .. }) => {
                    assert_eq!(without, wanted);
                }
                other => panic!("{url}: {other:?}"),
            }
        }
        assert!(Upstream::parse("http://h:80/openai").is_ok());
    }

    #[test]
    fn a_base_path_stands_before_the_path_of_the_request() {
        let upstream = Upstream::parse("http://127.0.0.1:1/base/").unwrap();
        let uri = upstream.target_for(&"/v1/models?a=b".parse().unwrap()).unwrap();
        assert_eq!(uri, "/base/v1/models?a=b");
    }
}
