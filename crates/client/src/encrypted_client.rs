//! Sends requests through a proxy that terminates TLS, with bodies encrypted to a key that the
//! gateway's evidence covers (docs/encrypted-bodies.md).

use std::{sync::Arc, time::Duration};

use confide_encrypted_body::{
    ANSWER_NONCE_FIELD, AnswerNonce, BodyEnd, BodyPublicKey, ENCAPSULATED_KEY_FIELD, END_FIELD,
    EncryptedBodyError, ExchangeSecret, RequestSealer,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Either;

use crate::{
    connector::{RequestBody, streamed_body},
    encapsulated_body::OpenedMessage,
    error::ClientError,
    gateway_report::{ReportJudge, fetch_key},
    key_problem::is_key_problem,
    pool::{AnswerBody, AnswerError, HttpClient},
    relay::Relay,
    sealed_body::{OpenedAnswerBody, SealedRequestBody},
    shared_key::{JudgedKey, KeyFailure, KeyFetch, SharedKey},
};

const KEY_FIELD: HeaderName = HeaderName::from_static(ENCAPSULATED_KEY_FIELD);
const BODY_END_FIELD: HeaderName = HeaderName::from_static(END_FIELD);
const NONCE_FIELD: HeaderName = HeaderName::from_static(ANSWER_NONCE_FIELD);

/// The body of an answer: as it came, or decrypted.
pub(crate) type EncryptedAnswerBody =
    Either<AnswerBody, Either<Box<OpenedAnswerBody>, Box<OpenedMessage>>>;

/// A client whose request bodies only an attested gateway can read.
pub struct EncryptedClient {
    http: Arc<HttpClient>,
    key: Arc<SharedKey>,
    relay: Option<Relay>,
}

impl EncryptedClient {
    /// A client that sends through `http` and asks for a new report when the last one is older than
    /// `age_max`. `clock` returns Unix seconds.
    pub fn new(
        http: HttpClient,
        judge: ReportJudge,
        age_max: Duration,
        clock: fn() -> u64,
    ) -> Self {
        let http = Arc::new(http);
        let fetching = http.clone();
        let fetch: KeyFetch = Box::new(move || {
            let (http, judge) = (fetching.clone(), judge.clone());
            Box::pin(async move { fetch_key(&http, judge).await })
        });
        Self { http, key: SharedKey::new(fetch, age_max, clock), relay: None }
    }

    /// The client, which now sends every request through `relay`, encapsulated whole. Only reports
    /// still come by the connection to the gateway's address.
    pub fn through_relay(self, relay: Relay) -> Self {
        Self { relay: Some(relay), ..self }
    }

    /// Fetches and judges a report unless the last one is recent. Requests that come together fetch
    /// one.
    ///
    /// # Errors
    /// [`ClientError::Report`] if the report is refused, and [`ClientError::ReportUnavailable`] if
    /// none came in time, now or a moment ago.
    pub async fn find_key(&self) -> Result<Arc<JudgedKey>, ClientError> {
        self.key.find().await.map_err(KeyFailure::into_error)
    }

    /// Sends one request. Its body is encrypted, and its answer has to be, unless it has none and its
    /// method needs none.
    ///
    /// # Errors
    /// Those of [`EncryptedClient::find_key`]; [`ClientError::Unencrypted`] for an answer in clear,
    /// whose text says nothing, [`ClientError::Unauthenticated`] for one without a first frame of
    /// the gateway's, and [`ClientError::KeyReplaced`] if the gateway has another key now.
    pub(crate) async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<EncryptedAnswerBody>, ClientError> {
        if let Some(relay) = &self.relay {
            let judged = self.find_key().await?;
            // Boxed, because other requests do not need the space.
            let answer = Box::pin(relay.request(request, &judged.key)).await;
            return match answer {
                Ok(answer) => Ok(answer.map(|body| Either::Right(Either::Right(Box::new(body))))),
                Err(error) => {
                    if matches!(error, ClientError::KeyReplaced) {
                        self.key.forget(&judged);
                    }
                    Err(error)
                }
            };
        }
        let needs_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        if !needs_body && request.body().is_end_stream() {
            let answer = self.http.request(request).await?.response;
            return Ok(answer.map(Either::Left));
        }
        let judged = self.find_key().await?;
        let (request, secret) = seal_request(request, &judged.key)?;
        let answer = self.http.request(request).await?.response;
        if !answer.headers().contains_key(NONCE_FIELD) {
            if is_key_problem(&answer) {
                self.key.forget(&judged);
                return Err(ClientError::KeyReplaced);
            }
            return Err(ClientError::Unencrypted { status: answer.status() });
        }
        open_answer(answer, &secret).await
    }
}

/// Encrypts the body of a request, which gets the fields that say so.
fn seal_request(
    request: Request<RequestBody>,
    key: &BodyPublicKey,
) -> Result<(Request<RequestBody>, ExchangeSecret), ClientError> {
    let sealer = RequestSealer::new(key, BodyEnd::FinalFrame).map_err(ClientError::Encryption)?;
    let secret = sealer.exchange_secret().map_err(ClientError::Encryption)?;
    let (mut head, body) = request.into_parts();
    let encapsulated = HeaderValue::from_str(&sealer.encapsulated_key().to_hex());
    let encapsulated = encapsulated.map_err(|error| ClientError::Request(error.into()))?;
    for name in [header::CONTENT_LENGTH, header::TE, header::TRAILER, header::EXPECT] {
        head.headers.remove(name);
    }
    head.headers.insert(KEY_FIELD, encapsulated);
    if let Some(value) = BodyEnd::FinalFrame.field_value() {
        head.headers.insert(BODY_END_FIELD, HeaderValue::from_static(value));
    }
    // An answer would be compressed before it is encrypted, and its length then tells of its text.
    head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let body = streamed_body(SealedRequestBody::new(body, sealer));
    Ok((Request::from_parts(head, body), secret))
}

/// Opens an answer that has a nonce, up to its first frame. A nonce proves nothing, so the head is
/// passed on only once a frame shows that the gateway answered: a proxy could otherwise forge a
/// success that needs no body.
async fn open_answer(
    answer: Response<AnswerBody>,
    secret: &ExchangeSecret,
) -> Result<Response<EncryptedAnswerBody>, ClientError> {
    let (mut head, body) = answer.into_parts();
    let status = head.status;
    // Programs do not read the body of such an answer, so nothing in it could vouch for it.
    if matches!(
        status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
    ) {
        return Err(ClientError::Unauthenticated { status, fault: EncryptedBodyError::NoFrame });
    }
    let nonce = find_nonce(&head.headers).map_err(ClientError::Encryption)?;
    let opener = secret.open_answer(nonce).map_err(ClientError::Encryption)?;
    for name in [NONCE_FIELD, BODY_END_FIELD, header::CONTENT_LENGTH, header::TRAILER] {
        head.headers.remove(name);
    }
    let mut body = Box::new(OpenedAnswerBody::new(body, opener));
    body.open_first_text().await.map_err(|error| match error {
        AnswerError::Encryption(fault) => ClientError::Unauthenticated { status, fault },
        AnswerError::Broken(error) => ClientError::Http(error),
        AnswerError::Paused { limit: deadline } => ClientError::Slow { deadline },
    })?;
    Ok(Response::from_parts(head, Either::Right(Either::Left(body))))
}

fn find_nonce(headers: &HeaderMap) -> Result<AnswerNonce, EncryptedBodyError> {
    let mut values = headers.get_all(NONCE_FIELD).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => AnswerNonce::parse(value.as_bytes()),
        _ => Err(EncryptedBodyError::AnswerNonce),
    }
}
