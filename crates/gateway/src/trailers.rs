//! Trailer fields (RFC 9110 section 6.5), which pass only where both ends have said so: the sender
//! announces their names in `Trailer`, and a client that wants those of an answer sends
//! `TE: trailers`.

use confide_http::list_members;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::route::REROUTING;

/// Fields that a receiver has to know before the body, and those that frame or route a message or
/// hold a secret (RFC 9110 section 6.5.1).
const NEVER_IN_TRAILERS: [HeaderName; 40] = [
    header::AGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::EXPECT,
    header::EXPIRES,
    header::FORWARDED,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::ORIGIN,
    header::PRAGMA,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VARY,
    header::WARNING,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// The treatment of the trailers of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrailerRule {
    /// They are dropped.
    Drop,
    /// Permitted fields pass; more fields than this are a fault.
    Pass { fields_max: usize },
}

/// The permitted names that a message announces, as the value of `Trailer`.
pub(crate) fn announced_trailers(headers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<&str> = list_members(headers, &header::TRAILER)
        .filter(|name| name.parse().is_ok_and(|name: HeaderName| is_permitted(&name)))
        .collect();
    (!names.is_empty()).then(|| HeaderValue::from_str(&names.join(", ")).ok()).flatten()
}

/// Whether the sender of a request accepts trailers in the answer.
pub(crate) fn accepts_trailers(headers: &HeaderMap) -> bool {
    list_members(headers, &header::TE).any(|coding| {
        let name = coding.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("trailers")
    })
}

/// Announces to the next server that the answer may have trailers. `TE` is a field of one hop, so
/// `Connection` has to name it (RFC 9110 section 10.1.4).
pub(crate) fn accept_trailers(headers: &mut HeaderMap) {
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
}

/// Removes the fields that must not be in trailers.
pub(crate) fn permitted_trailers(mut trailers: HeaderMap) -> HeaderMap {
    while let Some(name) = trailers.keys().find(|name| !is_permitted(name)).cloned() {
        trailers.remove(name);
    }
    trailers
}

/// Whether a field may be in trailers. A server that reads `_` as `-` would take `content_length` for
/// a forbidden one.
fn is_permitted(name: &HeaderName) -> bool {
    let is_listed = NEVER_IN_TRAILERS.contains(name) || REROUTING.contains(name);
    !is_listed && !name.as_str().contains('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_that_may_be_in_trailers_are_announced() {
        let mut both = fields(&[("trailer", "X-Sum, Content-Length")]);
        both.append("trailer", "host,server-timing".parse().unwrap());
        assert_eq!(announced_trailers(&fields(&[("trailer", "authorization")])), None);
        assert_eq!(announced_trailers(&HeaderMap::new()), None);
        assert_eq!(announced_trailers(&both).unwrap(), "X-Sum, server-timing");
    }

    #[test]
    fn trailers_are_accepted_by_name() {
        for (value, wanted) in [("trailers", true), ("gzip;q=0.5, Trailers", true), ("gzip", false)]
        {
            assert_eq!(accepts_trailers(&fields(&[("te", value)])), wanted, "{value}");
        }
        assert!(!accepts_trailers(&HeaderMap::new()));
    }

    #[test]
    fn fields_of_framing_routing_and_authentication_are_removed() {
        let given = fields(&[
            ("x-sum", "1"),
            ("content-length", "3"),
            ("content_length", "3"),
            ("host", "h"),
            ("set-cookie", "a=1"),
            ("x-original-url", "/metrics"),
            ("x_original_url", "/metrics"),
            ("x-api-key", "k"),
        ]);
        assert_eq!(permitted_trailers(given), fields(&[("x-sum", "1")]));
    }
}
