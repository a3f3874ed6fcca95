//! The checks of the head of every request.

use confide_http::ClientHandshake;
use http::{
    Method, Uri, Version, header, request,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{
    path::{self, PathFault},
    refusal::RequestRefusal,
    route::WEBSOCKET,
};

/// Refuses methods that are never proxied. TRACE would have the keys in a request's fields echoed
/// (RFC 9110 section 9.3.8).
pub(crate) fn check_method(method: &Method, is_websocket: bool) -> Result<(), RequestRefusal> {
    let is_refused = matches!(*method, Method::CONNECT | Method::TRACE) && !is_websocket;
    match is_refused || method.as_str() == WEBSOCKET {
        true => Err(RequestRefusal::Method(String::new())),
        false => Ok(()),
    }
}

/// Takes the client's handshake of a WebSocket from a head, which becomes that of an ordinary GET.
pub(crate) fn take_handshake(head: &mut request::Parts) -> Result<ClientHandshake, RequestRefusal> {
    ClientHandshake::take(head).ok_or(RequestRefusal::WebSocketHandshake)
}

/// Checks that there is exactly one valid `Host` (RFC 9112 section 3.2); HTTP/1.0 may omit it.
pub(crate) fn check_host(head: &request::Parts) -> Result<(), RequestRefusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let is_host = |host: &header::HeaderValue| {
        let text = host.to_str().unwrap_or("@");
        text.is_empty()
            || is_plain_host(text)
            || text.parse::<Authority>().is_ok_and(|host| !host.as_str().contains('@'))
    };
    match (hosts.next(), hosts.next()) {
        (Some(only), None) if is_host(only) => Ok(()),
        (None, _) if head.version < Version::HTTP_11 => Ok(()),
        _ => Err(RequestRefusal::Host),
    }
}

/// Whether the text is a name or an IPv4 address, with or without a port, as most clients send it.
fn is_plain_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "80"));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_port = (1..=4).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_port && !host.is_empty() && host.bytes().all(is_name)
}

/// Returns path and query as they are matched and sent. The authority of an absolute target is
/// ignored: the gateway decides where a request goes (RFC 9112 section 3.2.2).
pub(crate) fn normalise_target(uri: &Uri) -> Result<PathAndQuery, PathFault> {
    let is_origin_form = uri.scheme().is_none() && uri.authority().is_none();
    let is_absolute_form =
        matches!(uri.scheme(), Some(s) if [Scheme::HTTP, Scheme::HTTPS].contains(s));
    if !is_origin_form && !is_absolute_form {
        return Err(PathFault::NoPath);
    }
    let given = uri.path_and_query().ok_or(PathFault::NoPath)?;
    let path = path::normalise(given.path())?;
    if *path == *given.path() {
        return Ok(given.clone());
    }
    let text = match given.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.into_owned(),
    };
    text.parse().map_err(|_| PathFault::UnencodedCharacter)
}
