//! Requests on routes that select the server by key: each names the key to which it is encrypted, and
//! goes to the server that has the key, or nowhere.

use std::sync::Arc;

use confide_encrypted_body::{BodyKeyId, KEYS_TYPE, OHTTP_GATEWAY_PATH, encode_ohttp_keys};
use http::{HeaderValue, Method, Response, StatusCode, header, request, uri::PathAndQuery};

use crate::{
    answer::{self, AnswerBody},
    encrypted_body_fault::{EncryptedBodyFault, KeyNameFault},
    encrypted_request::{KEY_FIELD, KEY_ID},
    refusal::RequestRefusal,
    route::Route,
    server_group::{Destination, ServerGroup, ServerSet},
};

/// The destination of a request on a route: a group of servers, or the one that has the key which the
/// request names, if the route selects the server by key.
///
/// # Errors
/// [`EncryptedBodyFault`] if no key is named, or one that no server has.
pub(crate) async fn find_destination<'a>(
    head: &request::Parts,
    target: &'a PathAndQuery,
    route: &Route,
    group: &'a Arc<ServerGroup>,
) -> Result<Destination<'a>, RequestRefusal> {
    let holder = match route.by_key_id {
        // Boxed, because other requests do not need the space.
        true => Box::pin(find_holder(head, group)).await?,
        false => None,
    };
    Ok(Destination { target, group, holder })
}

/// The server that has the key which a request names; `None` if any may answer, because the request
/// has no body that could be encrypted and names no key.
async fn find_holder(
    head: &request::Parts,
    group: &Arc<ServerGroup>,
) -> Result<Option<ServerSet>, EncryptedBodyFault> {
    let mut values = head.headers.get_all(KEY_ID).iter();
    let id = match (values.next(), values.next()) {
        (None, _) if matches!(head.method, Method::GET | Method::HEAD) => return Ok(None),
        (Some(value), None) => BodyKeyId::parse(value.as_bytes()).ok_or(KeyNameFault::Malformed),
        (None, _) => Err(KeyNameFault::Absent),
        (Some(_), Some(_)) => Err(KeyNameFault::Repeated),
    };
    let id = id.map_err(EncryptedBodyFault::KeyNotNamed)?;
    match group.find_key_holder(id).await {
        Some(holder) => Ok(Some(holder)),
        None if head.headers.contains_key(KEY_FIELD) => Err(EncryptedBodyFault::UnknownKey),
        None => Err(EncryptedBodyFault::UnknownOhttpKey),
    }
}

/// The list that the gateway answers itself on a route: of the models of a group, or of its keys.
pub(crate) fn find_own_list(
    route: &Route,
    group: &ServerGroup,
    method: &Method,
    path: &str,
) -> Option<Result<Response<AnswerBody>, RequestRefusal>> {
    match route.by_key_id {
        true => list_keys(group, method, path),
        false => answer::list_own_models(group, method, path).map(Ok),
    }
}

/// The preferred key of each server, if the list of keys is asked for.
fn list_keys(
    group: &ServerGroup,
    method: &Method,
    path: &str,
) -> Option<Result<Response<AnswerBody>, RequestRefusal>> {
    if path != OHTTP_GATEWAY_PATH || !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let keys = group.list_keys();
    if keys.is_empty() {
        return Some(Err(EncryptedBodyFault::NoKeys.into()));
    }
    let mut response = answer::json_response(StatusCode::OK, encode_ohttp_keys(&keys).into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(KEYS_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(Ok(response))
}
