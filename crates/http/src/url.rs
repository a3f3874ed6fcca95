//! The URL of an HTTP service. URLs that other programs might read differently are refused.

use std::{borrow::Cow, fmt, net::IpAddr};

use http::uri::PathAndQuery;
use url::{Host, ParseError, Url};

/// The longest URL in bytes; RFC 9110 section 4.1 recommends at least 8000.
pub const URL_BYTES_MAX: usize = 8192;

/// The two schemes of HTTP (RFC 9110 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`: without TLS.
    Http,
    /// `https`: over TLS.
    Https,
}

impl Scheme {
    /// The port of a URL without a port.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme as it is written in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An absolute `http` or `https` URL without user information and without fragment.
///
/// It is parsed by the WHATWG URL Standard, which browsers and most clients follow. That standard
/// repairs what it reads: it drops tabs, decodes `%31` in a host and takes `127.1` and `2130706433`
/// for 127.0.0.1. A URL whose host would be repaired is refused here, so that every program reaches
/// the host as it is written. Path and query are kept as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    scheme: Scheme,
    host: String,
    explicit_port: Option<u16>,
    target: PathAndQuery,
}

/// The reason why a text is not accepted as an [`HttpUrl`]. The messages are phrased to follow
/// "got".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is longer than [`URL_BYTES_MAX`].
    #[error("a URL of {bytes} bytes, more than {URL_BYTES_MAX}")]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// The text contains white space, a control character or a character outside ASCII.
    #[error("a character that is not allowed in a URL")]
    Character,
    /// The text does not begin with a scheme and `://`.
    #[error("no scheme")]
    NoScheme,
    /// The scheme is neither `http` nor `https`.
    #[error("scheme `{0}`")]
    Scheme(String),
    /// No host follows the scheme.
    #[error("no host")]
    NoHost,
    /// A user name or a password precedes the host.
    #[error("a user name")]
    UserInformation,
    /// The host is neither a name nor an address.
    #[error("a host that is not valid: {0}")]
    Host(ParseError),
    /// Other programs read the host differently.
    #[error("host `{written}`, which some programs read as `{canonical}`")]
    AmbiguousHost {
        /// The host as it was written.
        written: String,
        /// The host as the URL Standard reads it.
        canonical: String,
    },
    /// The text after the host is not a colon and a port.
    #[error("a port that is not a number from 1 to 65535")]
    Port,
    /// The path or the query contains characters that a request target cannot contain.
    #[error("a path or query that HTTP cannot send")]
    RequestTarget,
    /// The URL has a fragment, which is never sent to a server.
    #[error("a fragment")]
    Fragment,
}

impl HttpUrl {
    /// Parses `http[s]://HOST[:PORT][/PATH][?QUERY]`.
    ///
    /// # Errors
    /// A [`UrlError`] for the first part that is not allowed.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong { bytes: text.len() });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        let scheme = parse_scheme(scheme)?;
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::UserInformation);
        }
        let (written_host, port) = split_port(authority)?;
        let explicit_port = port.map(parse_port).transpose()?;
        let host = parse_host(scheme, written_host)?;
        let target = match target.starts_with('/') {
            true => target.parse(),
            // An empty path is a slash (RFC 9110 section 4.2.3).
            false => format!("/{target}").parse(),
        };
        Ok(Self {
            scheme,
            host,
            explicit_port,
            target: target.map_err(|_| UrlError::RequestTarget)?,
        })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host in lower case; an IPv6 address in its shortest form and without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port to connect to: the written one, or the scheme's default.
    pub fn port(&self) -> u16 {
        self.explicit_port.unwrap_or(self.scheme.default_port())
    }

    /// The port that is written in the URL; `None` if there is none.
    pub fn explicit_port(&self) -> Option<u16> {
        self.explicit_port
    }

    /// `HOST:PORT`, with brackets around an IPv6 address and always with a port.
    pub fn authority(&self) -> String {
        format!("{}:{}", uri_host(&self.host), self.port())
    }

    /// The path as it is written; `/` if there is none.
    pub fn path(&self) -> &str {
        self.target.path()
    }

    /// The query as it is written, without the question mark.
    pub fn query(&self) -> Option<&str> {
        self.target.query()
    }

    /// The request target: path and query as they are written.
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.target
    }

    /// Whether the host is a numeric loopback address. A name never is, even if it resolves to one.
    pub fn is_loopback(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Replaces `localhost` by `127.0.0.1`, so that no resolver decides whether the host is
    /// loopback.
    #[must_use]
    pub fn with_numeric_localhost(mut self) -> Self {
        if self.host == "localhost" {
            "127.0.0.1".clone_into(&mut self.host);
        }
        self
    }
}

/// The whole URL, with the port only if it was written.
impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, uri_host(&self.host))?;
        if let Some(port) = self.explicit_port {
            write!(f, ":{port}")?;
        }
        self.target.fmt(f)
    }
}

/// A host in the form of a URL: with brackets around an IPv6 address (RFC 3986 section 3.2.2).
pub fn uri_host(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

/// Parses the scheme. A text without one may have `://` in its query; the error does not repeat
/// such a text.
fn parse_scheme(written: &str) -> Result<Scheme, UrlError> {
    if !is_scheme(written) {
        return Err(UrlError::NoScheme);
    }
    [Scheme::Http, Scheme::Https]
        .into_iter()
        .find(|scheme| written.eq_ignore_ascii_case(scheme.as_str()))
        .ok_or_else(|| UrlError::Scheme(written.to_owned()))
}

/// Whether the text has the form of a scheme (RFC 3986 section 3.1) and is short.
fn is_scheme(written: &str) -> bool {
    written.len() <= 16
        && written.starts_with(|first: char| first.is_ascii_alphabetic())
        && written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Splits an authority into the host, with the brackets of an IPv6 address, and the text after its
/// colon.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let host_end = match authority.starts_with('[') {
        true => authority.find(']').map(|bracket| bracket + 1),
        false => authority.find(':'),
    };
    let host_end = host_end.unwrap_or(authority.len());
    match authority.split_at(host_end) {
        ("", _) => Err(UrlError::NoHost),
        (host, "") => Ok((host, None)),
        (host, rest) => Ok((host, Some(rest.strip_prefix(':').ok_or(UrlError::Port)?))),
    }
}

/// Parses a port. The URL Standard accepts an empty port; here a colon must be followed by a
/// number.
fn parse_port(digits: &str) -> Result<u16, UrlError> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| is_number && *port != 0);
    port.ok_or(UrlError::Port)
}

fn parse_host(scheme: Scheme, written: &str) -> Result<String, UrlError> {
    let url = Url::parse(&format!("{scheme}://{written}")).map_err(UrlError::Host)?;
    let canonical = match url.host() {
        // An IPv6 address is accepted in any spelling.
        Some(Host::Ipv6(address)) => return Ok(address.to_string()),
        Some(host) => host.to_string(),
        None => return Err(UrlError::NoHost),
    };
    match canonical.eq_ignore_ascii_case(written) && is_reg_name(&canonical) {
        true => Ok(canonical),
        false => Err(UrlError::AmbiguousHost { written: written.to_owned(), canonical }),
    }
}

/// Whether the host consists of the letters, digits and marks of RFC 3986 section 3.2.2, which are
/// valid in a header field.
fn is_reg_name(host: &str) -> bool {
    host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_scheme_host_port_and_request_target() {
        for (text, host, port, target, canonical) in [
            ("https://Example.org", "example.org", 443, "/", "https://example.org/"),
            ("HTTP://h", "h", 80, "/", "http://h/"),
            ("http://h?q", "h", 80, "/?q", "http://h/?q"),
            ("https://h:0443/a?b=c", "h", 443, "/a?b=c", "https://h:443/a?b=c"),
            ("https://127.0.0.1:8443", "127.0.0.1", 8443, "/", "https://127.0.0.1:8443/"),
            ("https://[0:0::1]:1/", "::1", 1, "/", "https://[::1]:1/"),
            ("https://[2001:DB8::1]", "2001:db8::1", 443, "/", "https://[2001:db8::1]/"),
            ("https://a_b.example.", "a_b.example.", 443, "/", "https://a_b.example./"),
            ("https://h/a/../b%2F//c", "h", 443, "/a/../b%2F//c", "https://h/a/../b%2F//c"),
            ("https://h/?@:", "h", 443, "/?@:", "https://h/?@:"),
            ("https://xn--bcher-kva.example", "xn--bcher-kva.example", 443, "/", ""),
        ] {
            let url = HttpUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((url.host(), url.port()), (host, port), "{text}");
            assert_eq!(url.path_and_query().as_str(), target, "{text}");
            if !canonical.is_empty() {
                assert_eq!(url.to_string(), canonical);
            }
            assert_eq!(HttpUrl::parse(&url.to_string()).unwrap(), url);
        }
    }

    #[test]
    fn a_port_that_is_no_port_is_refused_and_never_read_as_none() {
        for host in ["h", "127.0.0.1", "[::1]"] {
            for port in ["", "0", "00", "65536", "99999", "+443", "-1", "x", "443x", " 1", "1:2"] {
                let text = format!("https://{host}:{port}/");
                let refused = HttpUrl::parse(&text);
                let wanted = matches!(refused, Err(UrlError::Port | UrlError::Character));
                assert!(wanted, "{text}: {refused:?}");
            }
        }
        assert_eq!(HttpUrl::parse("https://[::1]443"), Err(UrlError::Port));
    }

    #[test]
    fn a_host_that_others_read_otherwise_is_refused() {
        for host in [
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001.0",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.0.0.01",
            "%31%32%37.0.0.1",
            "ex%61mple.org",
            "h\\evil.example",
            "{h}",
            "\"h\"",
        ] {
            let refused = HttpUrl::parse(&format!("https://{host}/"));
            let wanted = matches!(refused, Err(UrlError::AmbiguousHost { .. } | UrlError::Host(_)));
            assert!(wanted, "{host}: {refused:?}");
        }
        let refused = HttpUrl::parse("http://127.1:80").unwrap_err();
        assert_eq!(refused.to_string(), "host `127.1`, which some programs read as `127.0.0.1`");
    }

    #[test]
    fn what_is_no_url_of_a_service_is_refused() {
        for (text, wanted) in [
            ("", UrlError::NoScheme),
            ("h", UrlError::NoScheme),
            ("h:80", UrlError::NoScheme),
            ("/path", UrlError::NoScheme),
            ("https:h", UrlError::NoScheme),
            ("https:/h", UrlError::NoScheme),
            ("ftp://h", UrlError::Scheme("ftp".into())),
            ("://h", UrlError::NoScheme),
            ("example.org/cb?token=SECRET&next=https://x", UrlError::NoScheme),
            ("https://", UrlError::NoHost),
            ("https:///path", UrlError::NoHost),
            ("https://:1", UrlError::NoHost),
            ("https://?q", UrlError::NoHost),
            ("https://u@h", UrlError::UserInformation),
            ("https://u:p@h", UrlError::UserInformation),
            ("https://@h", UrlError::UserInformation),
            ("https://h#f", UrlError::Fragment),
            ("https://h/#", UrlError::Fragment),
            ("https://h/<", UrlError::RequestTarget),
            ("https://h/ x", UrlError::Character),
            (" https://h", UrlError::Character),
            ("https://h\n", UrlError::Character),
            ("https://ex\tample.org", UrlError::Character),
            ("https://h/\u{e9}", UrlError::Character),
            ("https://b\u{fc}cher.example", UrlError::Character),
            ("https://[::1", UrlError::Host(ParseError::InvalidIpv6Address)),
            ("https://[fe80::1%25eth0]/", UrlError::Host(ParseError::InvalidIpv6Address)),
            ("https://1.2.3.4.5/", UrlError::Host(ParseError::InvalidIpv4Address)),
            ("https://256.1.1.1/", UrlError::Host(ParseError::InvalidIpv4Address)),
        ] {
            assert_eq!(HttpUrl::parse(text), Err(wanted), "{text:?}");
        }
        let long = format!("https://h/{}", "a".repeat(URL_BYTES_MAX));
        assert_eq!(HttpUrl::parse(&long), Err(UrlError::TooLong { bytes: long.len() }));
    }

    /// Texts of the marks that parsers disagree on: what is accepted names one server for this
    /// type, for the `url` crate and for the `http` crate.
    #[test]
    fn what_is_accepted_is_read_alike_by_others() {
        const PIECES: [&str; 24] = [
            "h",
            "a.b",
            "127.0.0.1",
            "1",
            "0",
            "0x",
            ":",
            ":",
            "80",
            "@",
            "/",
            "/",
            "\\",
            "?",
            "#",
            "[",
            "]",
            "::1",
            "%31",
            ".",
            "-",
            "_",
            "..",
            "\t",
        ];
        // Steps of a linear congruential generator (Knuth, MMIX): the same texts in every run.
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap_or(0) % below
        };
        let mut accepted = 0;
        for _ in 0..50_000 {
            let mut text = String::from(["http://", "https://"][next(2)]);
            for _ in 0..=next(6) {
                text += PIECES[next(PIECES.len())];
            }
            let Ok(ours) = HttpUrl::parse(&text) else { continue };
            accepted += 1;
            let theirs = Url::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let host = match theirs.host() {
                Some(Host::Ipv6(address)) => address.to_string(),
                host => host.map_or_else(String::new, |host| host.to_string()),
            };
            assert_eq!((ours.host(), Some(ours.port())), (&*host, theirs.port_or_known_default()));
            let uri: http::Uri = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let port = uri.port_u16().unwrap_or(ours.scheme().default_port());
            assert_eq!(ours.port(), port, "{text}");
            assert_eq!(uri.path(), ours.path(), "{text}");
            let host = uri.host().map(str::to_ascii_lowercase);
            assert_eq!(host.as_deref(), Some(&*uri_host(ours.host())), "{text}");
        }
        assert!(accepted > 1000, "{accepted} texts were accepted");
    }

    #[test]
    fn only_a_number_is_loopback_and_localhost_can_be_made_one() {
        for (text, wanted) in [
            ("http://127.0.0.1:8000", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:8000/base", true),
            ("http://localhost", false),
            ("http://localhost.example.org", false),
            ("http://127.0.0.1.example.org", false),
            ("http://0.0.0.0", false),
        ] {
            assert_eq!(HttpUrl::parse(text).unwrap().is_loopback(), wanted, "{text}");
        }
        let local = HttpUrl::parse("http://LocalHost:80/").unwrap().with_numeric_localhost();
        assert!(local.is_loopback());
        assert_eq!(local.authority(), "127.0.0.1:80");
    }
}
