//! The gateway of OHTTP (RFC 9458, and chunks by draft-ietf-ohai-chunked-ohttp): a relay passes on
//! requests that it cannot read, and the request inside is answered like any other.
//!
//! What is wrong with an encapsulated request itself is answered in clear and tells nothing of what is
//! in it. Once its first chunk was opened, every answer is encapsulated.

use confide_encrypted_body::OHTTP_GATEWAY_PATH;
use http::{Method, Request, Response, request};

use crate::{
    client_body::ClientBody,
    client_connection::ClientConnection,
    encrypted_request::EncryptedRequests,
    message_terms::MessageTerms,
    ohttp_request::{OpenedRequest, open_message},
    path,
    proxy::Proxy,
    refusal::RequestRefusal,
    sealed_answer::GatewayBody,
};

/// Answers a request, or the one inside of it.
pub(crate) async fn answer(
    proxy: &Proxy,
    request: Request<ClientBody>,
    connection: ClientConnection<'_>,
) -> Response<GatewayBody> {
    match proxy.encrypted_requests() {
        // Boxed, because other requests do not need the space.
        Some(requests) if is_encapsulated(&request) => {
            Box::pin(answer_encapsulated(proxy, requests, request, connection)).await
        }
        _ => proxy.answer(request, connection).await,
    }
}

/// Whether a request claims to have another one inside.
fn is_encapsulated(request: &Request<ClientBody>) -> bool {
    request.method() == Method::POST
        && path::normalise(request.uri().path()).is_ok_and(|path| path == OHTTP_GATEWAY_PATH)
}

/// Opens an encapsulated request, answers the one inside, and encapsulates the answer.
async fn answer_encapsulated(
    proxy: &Proxy,
    requests: &EncryptedRequests,
    request: Request<ClientBody>,
    connection: ClientConnection<'_>,
) -> Response<GatewayBody> {
    let (mut head, body) = request.into_parts();
    let opened = match proxy.check_head(&mut head, false) {
        Ok(_) => open_message(requests, &head, body, proxy.buffers(), connection.peer).await,
        Err(refusal) => Err(refusal),
    };
    let OpenedRequest { inner, secret } = match opened {
        Ok(opened) => opened,
        Err(refusal) => return refuse(proxy, head, refusal),
    };
    let share = proxy.buffers().open_share(connection.peer);
    let method = inner.as_ref().map_or(Method::POST, |inner| inner.method().clone());
    let terms = match MessageTerms::new(&secret, &method, share) {
        Ok(terms) => terms,
        Err(error) => return refuse(proxy, head, error.into()),
    };
    // Evidence is for a connection, which is the relay's.
    let connection = ClientConnection { evidence: None, ..connection };
    terms.seal(match inner {
        // The proxy serves no encapsulated requests itself, so none can be inside of another.
        Ok(inner) => proxy.answer(inner, connection).await,
        Err(refusal) => refuse(proxy, head, refusal),
    })
}

fn refuse(proxy: &Proxy, head: request::Parts, refusal: RequestRefusal) -> Response<GatewayBody> {
    proxy.refuse(Request::from_parts(head, ClientBody::Empty), refusal)
}
