//! Sends requests to a gateway through a relay of OHTTP (RFC 9458, in chunks): the relay sees neither
//! requests nor answers, and the gateway does not see from where they come.

use std::time::Duration;

use confide_encrypted_body::{
    BodyCipher, BodyPublicKey, ControlData, INCREMENTAL, INCREMENTAL_FIELD, KEY_ID_FIELD,
    MessageField, MessageHead, OhttpForm, OhttpRequestSealer,
};
use confide_http::{HttpUrl, Scheme, remove_hop_by_hop};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header, request};

use crate::{
    answer_error::AnswerError,
    encapsulated_body::{MessageSealer, OpenedMessage, read_answer_head},
    endpoint::Endpoint,
    error::ClientError,
    key_problem::{has_type, is_key_problem},
    pool::{CheckedOut, HttpClient},
    request_body::{RequestBody, streamed_body},
    sealed_body::SealedRequestBody,
};

const INCREMENTAL_NAME: HeaderName = HeaderName::from_static(INCREMENTAL_FIELD);
const WANTED: &str = "https://HOST[:PORT][/PATH] without user or fragment";

/// A relay that passes encapsulated requests on to one gateway.
pub struct Relay {
    http: HttpClient,
    target: Uri,
}

/// The address of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayUrl {
    /// Host and port.
    pub endpoint: Endpoint,
    target: Uri,
}

impl RelayUrl {
    /// Parses `https://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// [`ClientError::Url`] for any other text.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let bad = |got: String| ClientError::Url { url: text.into(), wanted: WANTED, got };
        let url = HttpUrl::parse(text).map_err(|error| bad(error.to_string()))?;
        if url.scheme() != Scheme::Https {
            return Err(bad(format!("scheme `{}`", url.scheme())));
        }
        let endpoint = Endpoint::new(url.host(), url.port());
        Ok(Self { endpoint, target: url.path_and_query().clone().into() })
    }
}

impl Relay {
    /// A relay that is reached by `http`, whose connections lead to the endpoint of `url`.
    pub fn new(http: HttpClient, url: RelayUrl) -> Self {
        Self { http, target: url.target }
    }

    /// The connections to the relay.
    pub(crate) fn http(&self) -> &HttpClient {
        &self.http
    }

    /// Encapsulates a request to the gateway's key, and opens the answer up to its head.
    ///
    /// # Errors
    /// [`ClientError::Unencrypted`] for an answer that is not encapsulated, whose text says nothing,
    /// [`ClientError::Unauthenticated`] for one that the gateway did not make for this request, and
    /// [`ClientError::KeyReplaced`] if the gateway has another key now.
    pub(crate) async fn send(
        &self,
        checked_out: CheckedOut,
        request: Request<RequestBody>,
        key: &BodyPublicKey,
        connect: Option<Duration>,
    ) -> Result<Response<OpenedMessage>, ClientError> {
        let (head, body) = request.into_parts();
        let sealer = OhttpRequestSealer::new(key, BodyCipher::Aes256Gcm, OhttpForm::Chunked);
        let sealer = sealer.map_err(ClientError::Encryption)?;
        let secret = sealer.answer_secret().map_err(ClientError::Encryption)?;
        let sealer = MessageSealer::new(describe_head(head), sealer);
        let body = SealedRequestBody::new(body, sealer);
        let outer = Request::builder()
            .method(Method::POST)
            .uri(self.target.clone())
            .header(header::CONTENT_TYPE, OhttpForm::Chunked.request_type())
            .header(INCREMENTAL_NAME, INCREMENTAL)
            .header(KEY_ID_FIELD, key.key_id().to_string())
            .body(streamed_body(body))
            .map_err(ClientError::Request)?;
        let answered = self.http.send(checked_out, outer, connect).await;
        let answer = answered.map_err(|unanswered| unanswered.error)?.response;
        let status = answer.status();
        if is_key_problem(&answer) {
            return Err(ClientError::KeyReplaced);
        }
        if status != StatusCode::OK || !has_type(&answer, OhttpForm::Chunked.answer_type()) {
            return Err(ClientError::Unencrypted { status });
        }
        let opened = OpenedMessage::open(answer.into_body(), secret).await;
        let (head, body) = opened.map_err(|error| match error {
            AnswerError::Encryption(fault) => ClientError::Unauthenticated { status, fault },
            AnswerError::Broken(error) => ClientError::Http(error),
            AnswerError::Paused { limit: deadline } => ClientError::Slow { deadline },
        })?;
        let head = read_answer_head(&head);
        let head = head.map_err(|fault| ClientError::Unauthenticated { status, fault })?;
        Ok(Response::from_parts(head, body))
    }
}

/// The head of a request in binary form. It names no authority, since the relay decides which gateway
/// it is for.
fn describe_head(mut head: request::Parts) -> MessageHead {
    remove_hop_by_hop(&mut head.headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::TRAILER, header::EXPECT] {
        head.headers.remove(name);
    }
    let describe = |(name, value): (&HeaderName, &HeaderValue)| MessageField {
        name: name.as_str().as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let control = ControlData::Request {
        method: head.method.as_str().as_bytes().to_vec(),
        scheme: b"https".to_vec(),
        authority: Vec::new(),
        path: path.as_bytes().to_vec(),
    };
    MessageHead { control, fields: head.headers.iter().map(describe).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_relay_may_have_a_path() {
        for (url, endpoint, target) in [
            ("https://relay.example", "relay.example:443", "/"),
            ("https://relay.example:1/a/b?c=d", "relay.example:1", "/a/b?c=d"),
        ] {
            let url = RelayUrl::parse(url).unwrap();
            assert_eq!(url.endpoint.to_string(), endpoint);
            assert_eq!(url.target, target);
        }
        for url in ["http://relay.example", "relay.example", "https://u@relay.example/"] {
            assert!(matches!(RelayUrl::parse(url), Err(ClientError::Url { .. })), "{url}");
        }
    }

    #[test]
    fn a_request_inside_says_nothing_of_the_connection_and_names_no_authority() {
        let request = Request::post("/v1/chat/completions?a")
            .header("host", "127.0.0.1:1")
            .header("authorization", "Bearer k")
            .header("connection", "x")
            .header("x", "y")
            .header("te", "trailers")
            .header("content-length", "7")
            .body(())
            .unwrap();
        let MessageHead { control, fields } = describe_head(request.into_parts().0);
        let ControlData::Request { authority, path, .. } = control else { panic!("a request") };
        assert_eq!((authority, &path[..]), (Vec::new(), &b"/v1/chat/completions?a"[..]));
        let names: Vec<_> = fields.iter().map(|field| &field.name[..]).collect();
        assert_eq!(names, [b"authorization"]);
    }
}
