//! One request in, one request out, both bodies streamed.

use std::{convert::Infallible, sync::Arc, time::Instant};

use bytes::Bytes;
use confide_http::{
    BodyPace, asks_for_websocket, has_known_codings, has_marked_end, remove_hop_by_hop,
};
use http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version, header, request,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body;
use http_body_util::Either;
use hyper::body::Incoming;

use crate::{
    access_log::AccessLog,
    answer::{self, AnswerBody},
    body::{GuardedBody, Lingering},
    configuration::{Configuration, WELL_KNOWN_PATH},
    connection::{Connection, RequestBody, UnsentRequest, without_body},
    fault::{UpstreamFailure, UpstreamFault},
    limits::GatewayLimits,
    manifest::ManifestWatch,
    path::{self, PathFault},
    pool::{AnswerStream, Pool},
    refusal::Refusal,
    route::{Pattern, Route},
};

/// The fields that make some servers use another method or path than the request line's, which
/// would bypass the routes.
const REROUTING: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// The reverse proxy: routes, pooled connections to the upstreams, limits.
pub(crate) struct Proxy {
    /// The routes, the most specific pattern first.
    routes: Vec<(Pattern, Route, Arc<Pool>)>,
    pools: Vec<Arc<Pool>>,
    manifest: Arc<ManifestWatch>,
    description: Bytes,
    limits: GatewayLimits,
    log: Option<AccessLog>,
}

impl Proxy {
    pub(crate) fn new(
        configuration: &Configuration,
        simulated: bool,
        limits: GatewayLimits,
    ) -> Self {
        let manifest = Arc::new(ManifestWatch::new(configuration.model_manifest_sha256));
        let nothing_attested = Arc::new(ManifestWatch::new(None));
        let pools: Vec<Arc<Pool>> = configuration
            .upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| {
                // The manifest is the first upstream's.
                let manifest = if index == 0 { &manifest } else { &nothing_attested };
                Arc::new(Pool::new(upstream.clone(), manifest.clone(), limits))
            })
            .collect();
        let mut routes: Vec<_> = configuration
            .routes
            .iter()
            .filter_map(|route| {
                let pool = pools.iter().find(|pool| *pool.upstream() == route.upstream)?;
                Some((route.pattern().ok()?, route.clone(), pool.clone()))
            })
            .collect();
        routes.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let description = configuration.description(simulated).into();
        Self { routes, pools, manifest, description, limits, log: None }
    }

    pub(crate) fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.log = log;
        self
    }

    /// Resolves when the evidence is known to attest a false digest: nobody may be served any more.
    pub(crate) async fn wait_for_other_model(&self) {
        self.manifest.wait_for_change().await;
    }

    /// Closes idle connections, and asks the first upstream for its model at intervals.
    pub(crate) async fn maintain_pools(&self) -> Infallible {
        let tick = RETIRE_EVERY.min(self.limits.upstream_check);
        let mut last_question = Instant::now();
        loop {
            tokio::time::sleep(tick).await;
            self.pools.iter().for_each(|pool| pool.retire());
            let is_due = last_question.elapsed() >= self.limits.upstream_check;
            if !is_due || !self.manifest.is_needed() || self.manifest.has_changed() {
                continue;
            }
            last_question = Instant::now();
            if let Some(pool) = self.pools.first()
                && let Err(UpstreamFailure { reason, .. }) = pool.check().await
            {
                tracing::debug!(%reason, "upstream does not confirm its model");
            }
        }
    }

    /// Answers one request. A failure is an answer too, unless the answer has already begun.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let Some(log) = &self.log else { return self.answer_unlogged(request).await };
        let (began, method) = (Instant::now(), request.method().clone());
        let path = request.uri().path().to_owned();
        let response = self.answer_unlogged(request).await;
        log.record_answer(&method, &path, response.status(), began.elapsed());
        response
    }

    async fn answer_unlogged(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (method, version) = (request.method().clone(), request.version());
        let outcome = self.answer_or_refuse(request).await;
        let outcome = outcome.and_then(|response| match version == Version::HTTP_10 {
            true if response.body().size_hint().exact().is_none() => Err(Refusal::OldVersion),
            _ => Ok(response),
        });
        let response = outcome.unwrap_or_else(Refusal::into_response);
        // The query and the bodies are never logged: they may hold what the gateway is there to
        // protect.
        tracing::debug!(%method, status = response.status().as_u16(), "answered");
        response
    }

    async fn answer_or_refuse(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let (head, body) = request.into_parts();
        let body = Lingering::new(body, &head.headers, self.limits.request_body_linger);
        // TRACE would have the keys in a request's fields echoed (RFC 9110 section 9.3.8).
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return Err(Refusal::Method(String::new()));
        }
        check_host(&head)?;
        let target = normalise_target(&head.uri).map_err(Refusal::Target)?;
        if self.manifest.has_changed() {
            return Err(changed_model_refusal());
        }
        if target.path() == WELL_KNOWN_PATH {
            return match head.method {
                Method::GET | Method::HEAD => {
                    Ok(answer::json(StatusCode::OK, self.description.clone()))
                }
                _ => Err(Refusal::Method("GET, HEAD".into())),
            };
        }
        if asks_for_websocket(&head.headers) {
            return Err(Refusal::Upgrade);
        }
        let pool = self.route(&head.method, target.path())?;
        let request = self.outgoing(head, body, &target, pool)?;
        if !self.manifest.is_needed() {
            return self.forward(request, pool).await;
        }
        tokio::select! {
            biased;
            () = self.manifest.wait_for_change() => Err(changed_model_refusal()),
            answer = self.forward(request, pool) => answer,
        }
    }

    /// The pool of the upstream that the request goes to.
    fn route(&self, method: &Method, path: &str) -> Result<&Arc<Pool>, Refusal> {
        let mut allowed: Vec<&str> = Vec::new();
        for (pattern, route, pool) in &self.routes {
            if !pattern.covers(path) {
                continue;
            }
            if route.allows(method) {
                return Ok(pool);
            }
            allowed.extend(route.method_names());
        }
        match allowed.is_empty() {
            true => Err(Refusal::NoRoute),
            false => Err(Refusal::Method(allowed.join(", "))),
        }
    }

    fn outgoing(
        &self,
        mut head: request::Parts,
        body: Lingering,
        target: &PathAndQuery,
        pool: &Pool,
    ) -> Result<Request<RequestBody>, Refusal> {
        if !has_known_codings(&head.headers) {
            return Err(Refusal::Coding);
        }
        // A server that leaves such a body unread takes it for the next request, which would bypass
        // the routes.
        if BODILESS.contains(&head.method) && !body.is_end_stream() {
            return Err(Refusal::BodyNotAllowed);
        }
        let limit = self.limits.request_body_bytes;
        if body.size_hint().lower() > limit {
            return Err(Refusal::TooLong { limit });
        }
        let upstream = pool.upstream();
        head.uri = upstream.target_for(target).map_err(|_| Refusal::Target(PathFault::Raw))?;
        head.version = Version::HTTP_11;
        remove_hop_by_hop(&mut head.headers);
        for name in &REROUTING {
            head.headers.remove(name);
        }
        head.headers.insert(header::HOST, upstream.host_header());
        let body = GuardedBody::new(body, limit, self.limits.request_body_pace);
        Ok(Request::from_parts(head, Either::Left(body)))
    }

    async fn forward(
        &self,
        request: Request<RequestBody>,
        pool: &Arc<Pool>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let method = request.method().clone();
        let started = tokio::time::timeout(self.limits.upstream_start, exchange(pool, request));
        let (response, connection) = started.await.map_err(|_| {
            let reason = format!("no answer within {:?}", self.limits.upstream_start);
            Refusal::Upstream(UpstreamFailure::new(UpstreamFault::Slow, reason))
        })??;
        if !has_marked_end(&response, &method) {
            let reason = format!("status {}", response.status());
            let failure = UpstreamFailure::new(UpstreamFault::Unframed, reason);
            return Err(Refusal::Upstream(failure));
        }
        let (mut head, body) = response.into_parts();
        let body = AnswerStream::new(body, connection, pool.clone(), &head.headers);
        head.version = Version::HTTP_11;
        remove_hop_by_hop(&mut head.headers);
        let location = head.headers.get(header::LOCATION);
        let path = location.and_then(|location| pool.upstream().path_of_redirect(location));
        if let Some(path) = path {
            head.headers.insert(header::LOCATION, path);
        }
        let pace = BodyPace::without_rate(self.limits.response_body_pause);
        let body = GuardedBody::new(body, u64::MAX, pace);
        Ok(Response::from_parts(head, Either::Left(body)))
    }
}

/// Methods whose content has no meaning (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.7).
const BODILESS: [Method; 4] = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];
/// The interval between two looks for idle connections: short next to the time that one is kept.
const RETIRE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Sends a request over a kept connection or a new one. It is sent a second time, on a new
/// connection, only where nothing of it was written, or where its method permits that (RFC 9110
/// section 9.2.2), it has no body and nothing came back.
async fn exchange(
    pool: &Pool,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Connection), Refusal> {
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    let mut request = request;
    if let Some(mut kept) = pool.take(is_repeatable) {
        let again = is_repeatable.then(|| request.headers().clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        match kept.send(request).await {
            Ok(response) => return Ok((response, kept)),
            Err(unsent) => request = repeat(*unsent, method, uri, again)?,
        }
    }
    let mut fresh = pool.open().await.map_err(Refusal::Upstream)?;
    match fresh.send(request).await {
        Ok(response) => Ok((response, fresh)),
        Err(unsent) => Err(Refusal::from_unsent(*unsent)),
    }
}

/// The request to send once more, where repeating it is safe.
fn repeat(
    mut unsent: UnsentRequest,
    method: Method,
    uri: Uri,
    headers: Option<HeaderMap>,
) -> Result<Request<RequestBody>, Refusal> {
    if let Some(request) = unsent.request.take() {
        return Ok(request);
    }
    let Some(headers) = headers.filter(|_| unsent.received == 0) else {
        return Err(Refusal::from_unsent(unsent));
    };
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.headers) = (method, uri, headers);
    Ok(without_body(head))
}

fn changed_model_refusal() -> Refusal {
    let reason = "it named another model earlier";
    Refusal::Upstream(UpstreamFailure::new(UpstreamFault::Changed, reason))
}

/// Checks that there is exactly one `Host` and that it is a host (RFC 9112 section 3.2); HTTP/1.0
/// may have none.
fn check_host(head: &request::Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let is_host = |host: &header::HeaderValue| {
        let text = host.to_str().unwrap_or("@");
        text.is_empty() || text.parse::<Authority>().is_ok_and(|host| !host.as_str().contains('@'))
    };
    match (hosts.next(), hosts.next()) {
        (Some(only), None) if is_host(only) => Ok(()),
        (None, _) if head.version < Version::HTTP_11 => Ok(()),
        _ => Err(Refusal::Host),
    }
}

/// Path and query as they are matched and sent. The authority of an absolute target is ignored: the
/// gateway decides where a request goes (RFC 9112 section 3.2.2).
fn normalise_target(uri: &Uri) -> Result<PathAndQuery, PathFault> {
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
    text.parse().map_err(|_| PathFault::Raw)
}
