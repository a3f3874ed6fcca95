//! The checks of the head of every request.

use confide_http::{
    ClientHandshake, has_supported_transfer_codings, remove_fields, remove_hop_by_hop,
    remove_underscored,
};
use http::{
    Method, Uri, Version, header, request,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body;

use crate::{
    body::LimitedBody,
    client_body::ClientBody,
    limits::GatewayLimits,
    path::{self, PathFault},
    refusal::RequestRefusal,
    route::{REROUTING, WEBSOCKET},
    trailers::{TrailerRule, accept_trailers, accepts_trailers, announced_trailers},
};

/// Methods whose content has no meaning (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.7).
pub(crate) const BODILESS: [Method; 4] =
    [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];

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

/// Refuses a request that no server should get, and removes the fields of the client's
/// connection.
pub(crate) fn check_and_strip(
    mut head: request::Parts,
    body: ClientBody,
    limits: &GatewayLimits,
) -> Result<(request::Parts, LimitedBody<ClientBody>), RequestRefusal> {
    if !has_supported_transfer_codings(&head.headers) {
        return Err(RequestRefusal::TransferCoding);
    }
    // A server that does not read such a body takes it for the next request, which would bypass
    // the routes.
    if BODILESS.contains(&head.method) && !body.is_end_stream() {
        return Err(RequestRefusal::BodyNotAllowed);
    }
    let limit = limits.request_body_bytes;
    if body.size_hint().lower() > limit {
        return Err(RequestRefusal::TooLong { limit });
    }
    head.version = Version::HTTP_11;
    let announced = announced_trailers(&head.headers);
    let accepts_trailers = accepts_trailers(&head.headers);
    remove_hop_by_hop(&mut head.headers);
    remove_fields(&mut head.headers, &REROUTING);
    remove_underscored(&mut head.headers);
    if accepts_trailers {
        accept_trailers(&mut head.headers);
    }
    let mut trailers = TrailerRule::Drop;
    if let Some(names) = announced
        // A body with a length has no chunks, and so no place for trailers.
        && body.size_hint().exact().is_none()
    {
        head.headers.insert(header::TRAILER, names);
        trailers = TrailerRule::Pass { fields_max: limits.head_fields };
    }
    Ok((head, LimitedBody::new(body, limit, limits.request_body_pace, trailers)))
}
