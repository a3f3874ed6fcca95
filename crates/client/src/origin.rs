//! What web pages may do at the loopback address. Any page may send a simple POST to any address,
//! though it cannot read the answer (Fetch standard, section 3.3); a permissive
//! `Access-Control-Allow-Origin` of the model server would let it read the answer too. A request
//! that a browser marks as coming from a page is therefore refused, unless the page's origin is
//! allowed by name.

use confide_channel::tunnel::{AllowedOrigins, RequestSource};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
        ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
        ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
        ORIGIN, VARY,
    },
};

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

/// Classifies a request by its header fields.
pub(crate) fn classify_source(origins: &AllowedOrigins, headers: &HeaderMap) -> RequestSource {
    let values = |name| headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    origins.classify_source(values(ORIGIN), values(SEC_FETCH_SITE))
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
