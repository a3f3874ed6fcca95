//! Sends requests through a proxy that terminates TLS, with bodies encrypted to a key that the
//! gateway's evidence covers (docs/encrypted-bodies.md).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use confide_encrypted_body::{
    ANSWER_NONCE_FIELD, AnswerNonce, BodyEnd, BodyKeyId, BodyPublicKey, ENCAPSULATED_KEY_FIELD,
    END_FIELD, EncryptedBodyError, ExchangeSecret, KEY_ID_FIELD, RequestSealer,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Either;

use crate::{
    answer_error::AnswerError,
    encapsulated_body::OpenedMessage,
    error::ClientError,
    gateway_report::{ReportJudge, fetch_key, fetch_listed_keys},
    key_problem::is_key_problem,
    pool::{AnswerBody, CheckedOut, ConnectionSource, HttpClient, RequestDeadlines},
    relay::Relay,
    request_body::{RequestBody, streamed_body},
    running_request::RunningRequest,
    sealed_body::{OpenedAnswerBody, SealedRequestBody},
    shared_key::{JudgedKey, KeyFailure, KeyFetch, SharedKey},
    unanswered_request::UnansweredRequest,
};

const KEY_FIELD: HeaderName = HeaderName::from_static(ENCAPSULATED_KEY_FIELD);
const KEY_ID: HeaderName = HeaderName::from_static(KEY_ID_FIELD);
const BODY_END_FIELD: HeaderName = HeaderName::from_static(END_FIELD);
const NONCE_FIELD: HeaderName = HeaderName::from_static(ANSWER_NONCE_FIELD);

/// The body of an answer: as it came, or decrypted.
pub(crate) type EncryptedAnswerBody =
    Either<AnswerBody, Either<Box<OpenedAnswerBody>, Box<OpenedMessage>>>;

/// The key and the connection of a request of which nothing was sent yet.
pub(crate) struct PreparedExchange {
    /// The key to which it is sealed, if it is.
    pub(crate) key: Option<Arc<JudgedKey>>,
    pub(crate) checked_out: CheckedOut,
    /// The longest time to open another connection in place of one that was closed meanwhile.
    pub(crate) connect: Option<Duration>,
}

/// The form in which requests are encrypted, with the connections that carry them.
#[derive(Clone)]
pub enum EncryptedForm {
    /// Whole messages (OHTTP).
    Messages(Arc<Relay>),
    /// Bodies only (EHBP): method, path and fields stay visible.
    Bodies(HttpClient),
}

impl EncryptedForm {
    fn http(&self) -> &HttpClient {
        match self {
            Self::Messages(relay) => relay.http(),
            Self::Bodies(http) => http,
        }
    }
}

/// A client whose request bodies only an attested gateway can read.
///
/// Of several gateways behind one address it uses one, by the identifier of that one's key.
pub struct EncryptedClient {
    /// The connections for reports and lists of keys. They have a queue of their own, so that no report
    /// waits for requests to end.
    reports: HttpClient,
    form: EncryptedForm,
    key: Arc<SharedKey>,
    latest: Arc<LatestKey>,
    rules: ReportRules,
    is_discovery_allowed: bool,
}

/// The judge of reports, and the time for which a judged one counts.
#[derive(Clone)]
struct ReportRules {
    judge: ReportJudge,
    age_max: Duration,
    /// Returns Unix seconds.
    clock: fn() -> u64,
}

/// The key that was judged last, and the one by which the gateway is asked for.
#[derive(Default)]
struct LatestKey {
    judged: Mutex<Option<JudgedKey>>,
    named: Mutex<Option<BodyKeyId>>,
}

impl EncryptedClient {
    /// A client that sends requests in this form. It fetches a report through `reports`, and a new one
    /// when the last one is older than `age_max`. `reports` must not share its queue with the requests.
    /// `clock` returns Unix seconds.
    pub fn new(
        reports: HttpClient,
        form: EncryptedForm,
        judge: ReportJudge,
        age_max: Duration,
        clock: fn() -> u64,
    ) -> Self {
        Self::with_key(reports, form, ReportRules { judge, age_max, clock }, None)
    }

    /// The client, which now lets a [`ReplicaSet`](crate::ReplicaSet) discover further gateways behind its
    /// address. That takes a request to the address every half minute, which shows it the address of
    /// this machine even if all other requests go through a relay.
    pub fn with_discovery(self) -> Self {
        Self { is_discovery_allowed: true, ..self }
    }

    /// A client of another gateway behind the same address, which has the key `id`. Its report still
    /// has to be fetched and judged.
    pub(crate) fn for_key(&self, id: BodyKeyId) -> Self {
        Self::with_key(self.reports.clone(), self.form.clone(), self.rules.clone(), Some(id))
    }

    fn with_key(
        reports: HttpClient,
        form: EncryptedForm,
        rules: ReportRules,
        named: Option<BodyKeyId>,
    ) -> Self {
        let latest = Arc::new(LatestKey { named: Mutex::new(named), ..LatestKey::default() });
        let ReportRules { judge, age_max, clock } = rules.clone();
        let (fetching, fetched) = (reports.clone(), latest.clone());
        let fetch: KeyFetch = Box::new(move || {
            let (http, judge, latest) = (fetching.clone(), judge.clone(), fetched.clone());
            Box::pin(async move {
                let named = *lock(&latest.named);
                let judged = fetch_key(&http, judge, named).await?;
                *lock(&latest.named) = Some(judged.key.key_id());
                *lock(&latest.judged) = Some(judged.clone());
                Ok(judged)
            })
        });
        let key = SharedKey::new(fetch, age_max, clock);
        Self { reports, form, key, latest, rules, is_discovery_allowed: false }
    }

    /// Whether further gateways behind its address may be discovered.
    pub(crate) fn is_discovery_allowed(&self) -> bool {
        self.is_discovery_allowed
    }

    /// The key that was judged last.
    pub(crate) fn latest_key(&self) -> Option<JudgedKey> {
        lock(&self.latest.judged).clone()
    }

    /// The identifier of that key, or of the one by which the gateway is asked for.
    pub(crate) fn key_id(&self) -> Option<BodyKeyId> {
        *lock(&self.latest.named)
    }

    /// The identifiers of the keys that the proxy's answer lists, of the kind of the judged one, or of the
    /// first one while none is judged. Nothing vouches for them: each is judged by its own report.
    pub(crate) async fn list_key_ids(&self) -> Result<Vec<BodyKeyId>, ClientError> {
        let listed = fetch_listed_keys(&self.reports).await?;
        let judged = lock(&self.latest.judged).as_ref().map(|judged| judged.key.kem());
        let kem = judged.or_else(|| listed.first().map(BodyPublicKey::kem));
        let listed = listed.iter().filter(|key| Some(key.kem()) == kem);
        Ok(listed.map(BodyPublicKey::key_id).collect())
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

    /// Forgets a key that the gateway no longer has, so that its next report is fetched and judged. Returns
    /// whether the key was still in use.
    pub(crate) fn forget_key(&self, used: &Arc<JudgedKey>) -> bool {
        self.key.forget(used)
    }

    /// Whether a request is encrypted: in the form of whole messages each one, and otherwise those with a
    /// body or whose method needs one.
    pub(crate) fn is_sealed(&self, request: &Request<RequestBody>) -> bool {
        let needs_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
        let is_message = matches!(self.form, EncryptedForm::Messages(_));
        is_message || needs_body || !request.body().is_end_stream()
    }

    /// Finds a judged key, without which nothing is sent, and a connection. A request that is sealed gets
    /// the key.
    ///
    /// # Errors
    /// Those of [`EncryptedClient::find_key`] and of a connection.
    pub(crate) async fn prepare(
        &self,
        is_sealed: bool,
        deadlines: RequestDeadlines,
        running: RunningRequest,
    ) -> Result<PreparedExchange, ClientError> {
        let connect = deadlines.connect;
        // Before a place is taken, which others need while a report is fetched.
        self.find_key_within(connect).await?;
        let source = ConnectionSource::PooledOrNew;
        let checked_out = self.form.http().check_out(source, deadlines, Some(running)).await?;
        // The wait for a place may be longer than the key is in use.
        let judged = self.find_key_within(connect).await?;
        Ok(PreparedExchange { key: is_sealed.then_some(judged), checked_out, connect })
    }

    async fn find_key_within(
        &self,
        deadline: Option<Duration>,
    ) -> Result<Arc<JudgedKey>, ClientError> {
        let Some(deadline) = deadline else { return self.find_key().await };
        // After the deadline the fetch goes on for later requests.
        let found = tokio::time::timeout(deadline, self.find_key()).await;
        let reason = || format!("none came within {deadline:?}");
        found.map_err(|_| ClientError::ReportUnavailable { reason: reason() })?
    }

    /// Sends one request. With a key its body is encrypted, and its answer has to be.
    ///
    /// # Errors
    /// [`ClientError::Unencrypted`] for an answer in clear, whose text says nothing,
    /// [`ClientError::Unauthenticated`] for one without a first frame of the gateway's, and
    /// [`ClientError::KeyReplaced`] if the gateway has another key now.
    pub(crate) async fn send(
        &self,
        prepared: PreparedExchange,
        request: Request<RequestBody>,
    ) -> Result<Response<EncryptedAnswerBody>, Box<UnansweredRequest>> {
        let PreparedExchange { key, checked_out, connect } = prepared;
        let Some(judged) = key else {
            let answer = self.form.http().send(checked_out, request, connect).await?;
            return Ok(answer.response.map(Either::Left));
        };
        let answered = match &self.form {
            // Boxed, because other requests do not need the space.
            EncryptedForm::Messages(relay) => {
                Box::pin(relay.send(checked_out, request, &judged.key, connect))
                    .await
                    .map(|answer| answer.map(|body| Either::Right(Either::Right(Box::new(body)))))
            }
            EncryptedForm::Bodies(http) => {
                send_sealed(http, checked_out, request, &judged.key, connect).await
            }
        };
        // A sealed request is for one key, so none is handed back to be sent elsewhere.
        answered.map_err(UnansweredRequest::from_sent)
    }
}

/// Sends a request with its body encrypted.
async fn send_sealed(
    http: &HttpClient,
    checked_out: CheckedOut,
    request: Request<RequestBody>,
    key: &BodyPublicKey,
    connect: Option<Duration>,
) -> Result<Response<EncryptedAnswerBody>, ClientError> {
    let (request, secret) = seal_request(request, key)?;
    let answered = http.send(checked_out, request, connect).await;
    let answer = answered.map_err(|unanswered| unanswered.error)?.response;
    if !answer.headers().contains_key(NONCE_FIELD) {
        return Err(match is_key_problem(&answer) {
            true => ClientError::KeyReplaced,
            false => ClientError::Unencrypted { status: answer.status() },
        });
    }
    open_answer(answer, &secret).await
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
    let id = HeaderValue::from_str(&key.key_id().to_string());
    head.headers.insert(KEY_ID, id.map_err(|error| ClientError::Request(error.into()))?);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
