//! Decides which web pages may use an address. A browser lets any page send requests and open
//! WebSockets to any address, loopback included (RFC 6455 section 10.2), and names the page's origin
//! in `Origin`. Checking `Host` instead would not help: a page can make its own name resolve to the
//! address.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest number of origins; each request's origin is compared with all of them.
const ORIGINS_MAX: usize = 64;

/// The longest origin in bytes: a scheme, a DNS name and a port.
const ORIGIN_BYTES_MAX: usize = 300;

/// The origin of pages from a file and in a sandbox.
const NULL: &str = "null";

/// The web origins whose pages may use an address; none by default.
///
/// Origins are compared as browsers serialise them (RFC 6454 section 6.2), byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins(Vec<String>);

/// The reason why an origin cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The origin is not written as a browser sends it.
    #[error("origin {origin:?}: wanted SCHEME://HOST[:PORT] in lower case, without a path")]
    Form {
        /// The origin, shortened.
        origin: String,
    },
    /// `*` or a pattern: it would allow pages that nobody has named.
    #[error("origin {origin:?}: there is no wildcard, wanted each origin by name")]
    Wildcard {
        /// The origin, shortened.
        origin: String,
    },
    /// `null`, which every page in a sandbox or from a file sends.
    #[error("origin \"null\": any page can send it, wanted SCHEME://HOST[:PORT]")]
    Null,
    /// There are more origins than the limit.
    #[error("wanted at most {wanted} origins, got {got}")]
    Count {
        /// The limit.
        wanted: usize,
        /// The number of given origins.
        got: usize,
    },
}

/// The source of a request, according to its header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// A program, or a person who typed the address.
    Program,
    /// A page of an allowed origin.
    AllowedPage,
    /// Any other page.
    Page,
}

impl AllowedOrigins {
    /// Parses origins, each `SCHEME://HOST[:PORT]`. The default port of `http` and `https` is left
    /// out, as browsers do.
    ///
    /// # Errors
    /// [`OriginError`] for the first origin that is not written as a browser sends it, and for more
    /// than 64 origins.
    pub fn new<T: AsRef<str>>(origins: &[T]) -> Result<Self, OriginError> {
        if origins.len() > ORIGINS_MAX {
            return Err(OriginError::Count { wanted: ORIGINS_MAX, got: origins.len() });
        }
        origins
            .iter()
            .map(|origin| parse_origin(origin.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Adds `null`, which pages that were opened from disk send, and which any page can send.
    #[must_use]
    pub fn with_null(mut self) -> Self {
        self.0.push(NULL.into());
        self
    }

    /// The origins, as browsers send them.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Classifies a request by the values of its `Origin` and `Sec-Fetch-Site` fields.
    ///
    /// `Sec-Fetch-Site` (Fetch Metadata, section 2.2) is sent by current browsers and not by
    /// programs; its value `none` means that a person started the request.
    pub fn classify_source<'a>(
        &self,
        origins: impl IntoIterator<Item = &'a [u8]>,
        fetch_sites: impl IntoIterator<Item = &'a [u8]>,
    ) -> RequestSource {
        let mut origins = origins.into_iter();
        match (origins.next(), origins.next()) {
            (Some(only), None) if self.iter().any(|allowed| allowed.as_bytes() == only) => {
                RequestSource::AllowedPage
            }
            (None, _) if fetch_sites.into_iter().all(|site| site == b"none") => {
                RequestSource::Program
            }
            _ => RequestSource::Page,
        }
    }
}

fn parse_origin(given: &str) -> Result<String, OriginError> {
    let shortened = || given.chars().take(100).collect();
    let bad = || OriginError::Form { origin: shortened() };
    if given.contains('*') {
        return Err(OriginError::Wildcard { origin: shortened() });
    }
    if given == NULL {
        return Err(OriginError::Null);
    }
    let (scheme, authority) = given.split_once("://").ok_or_else(bad)?;
    if given.len() > ORIGIN_BYTES_MAX || !is_scheme(scheme) {
        return Err(bad());
    }
    let (host, port) = split_port(authority).ok_or_else(bad)?;
    if !is_serialised_host(host) {
        return Err(bad());
    }
    match (scheme, port) {
        ("http", Some(80)) | ("https", Some(443)) | (_, None) => Ok(format!("{scheme}://{host}")),
        (_, Some(port)) => Ok(format!("{scheme}://{host}:{port}")),
    }
}

fn is_scheme(scheme: &str) -> bool {
    let known =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    scheme.starts_with(|c: char| c.is_ascii_lowercase()) && scheme.bytes().all(known)
}

/// Splits an authority into its host and its port, which must be written without leading zeros.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let number: u16 = port.parse().ok()?;
            (number.to_string() == port).then_some((host, Some(number)))
        }
        _ => Some((authority, None)),
    }
}

/// Whether a host is spelled as browsers spell it: lower case, addresses in their only form.
fn is_serialised_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|parsed| parsed.to_string() == address);
    }
    let known =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    // Browsers read a host whose last label is a number as an IPv4 address.
    let is_number = host.rsplit('.').next().is_some_and(|last| {
        last.starts_with("0x") || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
    });
    !host.is_empty()
        && host.bytes().all(known)
        && (!is_number || host.parse::<Ipv4Addr>().is_ok_and(|parsed| parsed.to_string() == host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_kept_as_a_browser_sends_them() {
        for (given, sent) in [
            ("https://chat.example", "https://chat.example"),
            ("https://chat.example:443", "https://chat.example"),
            ("http://chat.example:80", "http://chat.example"),
            ("http://chat.example:443", "http://chat.example:443"),
            ("https://chat.example:8443", "https://chat.example:8443"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://[::1]", "http://[::1]"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
            ("app://obsidian.md", "app://obsidian.md"),
            ("chrome-extension://abcdefghij", "chrome-extension://abcdefghij"),
        ] {
            let origins = AllowedOrigins::new(&[given]).unwrap();
            assert_eq!(origins.iter().collect::<Vec<_>>(), [sent]);
        }
    }

    #[test]
    fn what_no_browser_sends_is_refused() {
        for bad in [
            "",
            "https://",
            "https://a/",
            "https://a/path",
            "https://a?q",
            "https://a#f",
            "https://u@a",
            "https://A.example",
            "HTTPS://a.example",
            "https://bücher.example",
            "https://a b",
            "https://a:",
            "https://a:0443",
            "https://a:65536",
            "https://a:+1",
            "https://a:1:2",
            "https://127.1",
            "https://0x7f000001",
            "https://[0:0::1]",
            "https://[::1",
            "https://::1",
            "a b://c",
            "1a://c",
            "://a",
            "chat.example",
        ] {
            let refused = AllowedOrigins::new(&[bad]);
            assert!(matches!(refused, Err(OriginError::Form { .. })), "{bad}: {refused:?}");
        }
        for pattern in ["*", "https://*", "https://*.example"] {
            let refused = AllowedOrigins::new(&[pattern]);
            assert!(matches!(refused, Err(OriginError::Wildcard { .. })), "{pattern}");
        }
        assert_eq!(AllowedOrigins::new(&["null"]), Err(OriginError::Null));
    }

    #[test]
    fn null_is_allowed_only_by_name() {
        let classify = |allowed: &AllowedOrigins| allowed.classify_source([&b"null"[..]], []);
        let named = AllowedOrigins::new(&["https://chat.example"]).unwrap();
        assert_eq!(classify(&named), RequestSource::Page);
        let allowed = named.with_null();
        assert_eq!(classify(&allowed), RequestSource::AllowedPage);
        assert_eq!(allowed.iter().collect::<Vec<_>>(), ["https://chat.example", "null"]);
        let two = [&b"null"[..], &b"null"[..]];
        assert_eq!(allowed.classify_source(two, []), RequestSource::Page);
        assert_eq!(
            allowed.classify_source([&b"https://evil.example"[..]], []),
            RequestSource::Page
        );
    }

    #[test]
    fn the_number_of_origins_is_bounded() {
        let origins: Vec<String> = (0..65).map(|n| format!("https://a{n}.example")).collect();
        assert_eq!(AllowedOrigins::new(&origins[..64]).unwrap().iter().count(), 64);
        let refused = AllowedOrigins::new(&origins);
        assert_eq!(refused, Err(OriginError::Count { wanted: 64, got: 65 }));
    }

    #[test]
    fn a_page_is_told_from_a_program_by_exactly_one_allowed_origin() {
        let allowed = AllowedOrigins::new(&["https://chat.example"]).unwrap();
        let classify = |origins: &[&str], sites: &[&str]| {
            let bytes = |values: &[&str]| -> Vec<Vec<u8>> {
                values.iter().map(|value| value.as_bytes().to_vec()).collect()
            };
            let (origins, sites) = (bytes(origins), bytes(sites));
            allowed.classify_source(origins.iter().map(|v| &v[..]), sites.iter().map(|v| &v[..]))
        };
        let ours = "https://chat.example";
        assert_eq!(classify(&[], &[]), RequestSource::Program);
        assert_eq!(classify(&[], &["none"]), RequestSource::Program);
        assert_eq!(classify(&[ours], &[]), RequestSource::AllowedPage);
        assert_eq!(classify(&[ours], &["cross-site"]), RequestSource::AllowedPage);
        for (origins, sites) in [
            (&["https://chat.example:8443"][..], &[][..]),
            (&["http://chat.example"], &[]),
            (&["https://CHAT.example"], &[]),
            (&["https://chat.example.evil"], &[]),
            (&["https://evil.chat.example"], &[]),
            (&["https://chat.example/"], &[]),
            (&["https://chat.example:443"], &[]),
            (&["null"], &[]),
            (&["*"], &[]),
            (&[""], &[]),
            (&[ours, ours], &[]),
            (&[ours, "https://evil.example"], &[]),
            (&[], &["cross-site"]),
            (&[], &["same-origin"]),
            (&[], &["none", "cross-site"]),
        ] {
            assert_eq!(classify(origins, sites), RequestSource::Page, "{origins:?} {sites:?}");
        }
        assert_eq!(
            AllowedOrigins::default().classify_source([ours.as_bytes()], []),
            RequestSource::Page
        );
    }
}
