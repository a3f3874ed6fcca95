//! Decides which web pages may use the loopback address. Any page may send a simple POST to any
//! address, though it cannot read the answer (Fetch standard, section 3.3); a permissive
//! `Access-Control-Allow-Origin` of the model server would let it read the answer too. A request
//! that a browser marks as coming from a page is therefore refused, unless the page's origin is
//! allowed by name.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
        ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
        ORIGIN, VARY,
    },
};

use crate::error::ClientError;

const WANTED: &str = "SCHEME://HOST[:PORT] as a browser sends it, without a path";

/// A field of Fetch metadata (W3C, section 2.2), which every current browser sends and programs do
/// not.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The fields that decide which pages may read an answer. The attested end must not decide that.
const ACCESS_CONTROL: [HeaderName; 6] = [
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// The web origins whose pages may use the loopback address; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins(Vec<HeaderValue>);

/// The source of a request, according to its header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestSource {
    /// A program, or a person who typed the address.
    Program,
    /// A page of an allowed origin.
    AllowedPage(HeaderValue),
    /// Any other page.
    Page,
}

impl AllowedOrigins {
    /// Parses origins, each `SCHEME://HOST[:PORT]`. There is no wildcard.
    ///
    /// # Errors
    /// [`ClientError::Origin`] if one has another form.
    pub fn new(origins: &[String]) -> Result<Self, ClientError> {
        origins.iter().map(|origin| parse_origin(origin)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn classify_source(&self, headers: &HeaderMap) -> RequestSource {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(only), None) if self.0.contains(only) => RequestSource::AllowedPage(only.clone()),
            (Some(_), _) => RequestSource::Page,
            (None, _) if headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "none") => {
                RequestSource::Program
            }
            (None, _) => RequestSource::Page,
        }
    }
}

fn parse_origin(origin: &str) -> Result<HeaderValue, ClientError> {
    let bad = || ClientError::Origin { origin: origin.into(), wanted: WANTED };
    let (scheme, authority) = origin.split_once("://").ok_or_else(bad)?;
    let odd = |c: char| c.is_ascii_uppercase() || !c.is_ascii_graphic() || "/*@?#".contains(c);
    if scheme.is_empty() || authority.is_empty() || authority.contains(odd) || scheme.contains(odd)
    {
        return Err(bad());
    }
    HeaderValue::from_str(origin).map_err(|_| bad())
}

/// Whether the request is a browser's CORS preflight.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Permits the method and fields that a preflight of an allowed origin asks for.
pub(crate) fn permit_preflight(asked: &HeaderMap, answer: &mut HeaderMap) {
    for (question, reply) in [
        (ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_ALLOW_METHODS),
        (ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_ALLOW_HEADERS),
    ] {
        if let Some(value) = asked.get(question) {
            answer.insert(reply, value.clone());
        }
    }
}

/// Removes the fields by which the attested end would let web pages read the answer.
pub(crate) fn remove_cors_headers(answer: &mut HeaderMap) {
    for name in &ACCESS_CONTROL {
        answer.remove(name);
    }
}

/// Lets the pages of one origin read the answer.
pub(crate) fn allow_cors_origin(origin: HeaderValue, answer: &mut HeaderMap) {
    answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    answer.append(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_names_and_never_everything() {
        for good in ["https://chat.example", "http://127.0.0.1:3000", "app://obsidian.md"] {
            assert!(AllowedOrigins::new(&[good.into()]).is_ok(), "{good}");
        }
        for bad in ["*", "null", "", "https://", "https://*", "https://a/", "https://A", "a b://c"]
        {
            let refused = AllowedOrigins::new(&[bad.into()]);
            assert!(matches!(refused, Err(ClientError::Origin { .. })), "{bad}");
        }
    }
}
