//! The reverse proxy, which streams the bodies of requests and answers.

use std::{convert::Infallible, sync::Arc, time::Instant};

use bytes::Bytes;
use confide_http::{
    BodyPace, has_explicit_end, has_supported_transfer_codings, remove_fields, remove_hop_by_hop,
};
use http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version, header, request,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::Body;
use http_body_util::Either;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::{
    access_log::AccessLog,
    answer::{self, AnswerBody},
    body::{LimitedBody, LingeringBody},
    configuration::{GatewayConfiguration, WELL_KNOWN_PATH},
    connection::{Connection, RequestBody, UnansweredRequest, bodiless_request},
    fault::{UpstreamFailure, UpstreamFault},
    http2_head,
    limits::GatewayLimits,
    manifest::AttestedModelWatch,
    path::{self, PathFault},
    pool::{AnswerStream, UpstreamPool},
    refusal::RequestRefusal,
    route::{PathPattern, Route, WEBSOCKET, websocket_method},
    trailers::{TrailerRule, accept_trailers, accepts_trailers, announced_trailers},
    tunnel::Tunnel,
    websocket::{ClientHandshake, UpstreamKey, is_websocket_request},
};

/// Fields by which some servers replace the method or path of the request line. They would bypass
/// the routes.
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
    routes: Vec<(PathPattern, Route, Arc<UpstreamPool>)>,
    pools: Vec<Arc<UpstreamPool>>,
    manifest: Arc<AttestedModelWatch>,
    description: Bytes,
    limits: GatewayLimits,
    log: Option<AccessLog>,
}

impl Proxy {
    pub(crate) fn new(
        configuration: &GatewayConfiguration,
        simulated: bool,
        limits: GatewayLimits,
    ) -> Self {
        let manifest = Arc::new(AttestedModelWatch::new(configuration.model_manifest_sha256));
        let nothing_attested = Arc::new(AttestedModelWatch::new(None));
        let pools: Vec<Arc<UpstreamPool>> = configuration
            .upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| {
                // The manifest belongs to the first upstream.
                let manifest = if index == 0 { &manifest } else { &nothing_attested };
                Arc::new(UpstreamPool::new(upstream.clone(), manifest.clone(), limits))
            })
            .collect();
        let mut routes: Vec<_> = configuration
            .routes
            .iter()
            .filter_map(|route| {
                let pool = pools.iter().find(|pool| *pool.upstream() == route.upstream)?;
                Some((route.parse_pattern().ok()?, route.clone(), pool.clone()))
            })
            .collect();
        routes.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let description = configuration.description_json(simulated).into();
        Self { routes, pools, manifest, description, limits, log: None }
    }

    pub(crate) fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.log = log;
        self
    }

    /// Resolves when the upstream has named another model, so that the evidence attests a false
    /// digest.
    pub(crate) async fn wait_for_model_change(&self) {
        self.manifest.wait_for_change().await;
    }

    /// Closes idle connections, and asks the first upstream for its model at intervals.
    pub(crate) async fn maintain_pools(&self) -> Infallible {
        let tick = CLOSE_STALE_EVERY.min(self.limits.upstream_check);
        let mut last_question = Instant::now();
        loop {
            tokio::time::sleep(tick).await;
            self.pools.iter().for_each(|pool| pool.close_stale());
            let is_due = last_question.elapsed() >= self.limits.upstream_check;
            if !is_due || !self.manifest.expects_model() || self.manifest.was_model_swapped() {
                continue;
            }
            last_question = Instant::now();
            if let Some(pool) = self.pools.first()
                && let Err(UpstreamFailure { reason, .. }) = pool.check_model().await
            {
                tracing::debug!(%reason, "upstream does not confirm its model");
            }
        }
    }

    /// Answers one request, with an error response if it fails before the answer has begun.
    ///
    /// If the answer accepts a WebSocket, its tunnel is queued in `tunnels`.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        tunnels: &mpsc::Sender<Tunnel>,
    ) -> Response<AnswerBody> {
        let Some(log) = &self.log else { return self.answer_unlogged(request, tunnels).await };
        let (began, method) = (Instant::now(), request.method().clone());
        let path = request.uri().path().to_owned();
        let response = self.answer_unlogged(request, tunnels).await;
        log.record_answer(&method, &path, response.status(), began.elapsed());
        response
    }

    async fn answer_unlogged(
        &self,
        request: Request<Incoming>,
        tunnels: &mpsc::Sender<Tunnel>,
    ) -> Response<AnswerBody> {
        let (method, version) = (request.method().clone(), request.version());
        let outcome = self.answer_or_refuse(request, tunnels).await;
        let outcome = outcome.and_then(|response| match version == Version::HTTP_10 {
            true if response.body().size_hint().exact().is_none() => {
                Err(RequestRefusal::StreamOverHttp10)
            }
            _ => Ok(response),
        });
        let response = outcome.unwrap_or_else(RequestRefusal::into_response);
        // The query and the bodies are never logged, because they may contain secrets.
        tracing::debug!(%method, status = response.status().as_u16(), "answered");
        response
    }

    async fn answer_or_refuse(
        &self,
        request: Request<Incoming>,
        tunnels: &mpsc::Sender<Tunnel>,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let (mut head, body) = request.into_parts();
        let mut body = LingeringBody::new(body, &head.headers, self.limits.request_body_linger);
        // TRACE would have the keys in a request's fields echoed (RFC 9110 section 9.3.8).
        let is_websocket = is_websocket_request(&head);
        let is_refused = matches!(head.method, Method::CONNECT | Method::TRACE) && !is_websocket;
        if is_refused || head.method.as_str() == WEBSOCKET {
            return Err(RequestRefusal::Method(String::new()));
        }
        if head.version == Version::HTTP_2 {
            http2_head::normalise_head(&mut head, self.limits.head_fields)?;
        }
        check_host(&head)?;
        let target = normalise_target(&head.uri).map_err(RequestRefusal::Target)?;
        if self.manifest.was_model_swapped() {
            return Err(changed_model_refusal());
        }
        if target.path() == WELL_KNOWN_PATH {
            return match head.method {
                Method::GET | Method::HEAD => {
                    Ok(answer::json_response(StatusCode::OK, self.description.clone()))
                }
                _ => Err(RequestRefusal::Method("GET, HEAD".into())),
            };
        }
        let method = if is_websocket { websocket_method() } else { head.method.clone() };
        let pool = self.find_pool(&method, target.path())?;
        let handshake = is_websocket.then(|| ClientHandshake::take(&mut head)).transpose()?;
        if head.version == Version::HTTP_2 && BODILESS.contains(&head.method) && !is_websocket {
            let deadline = self.limits.request_body_pace.pause;
            http2_head::wait_for_empty_body(&mut body, deadline).await?;
        }
        let request = self.upstream_request(head, body, &target, pool)?;
        let answer = async {
            match handshake {
                Some(handshake) => self.open_websocket(handshake, request, pool, tunnels).await,
                None => self.forward(request, pool).await,
            }
        };
        if !self.manifest.expects_model() {
            return answer.await;
        }
        tokio::select! {
            biased;
            () = self.manifest.wait_for_change() => Err(changed_model_refusal()),
            answer = answer => answer,
        }
    }

    /// Finds the pool of the upstream for a request.
    fn find_pool(&self, method: &Method, path: &str) -> Result<&Arc<UpstreamPool>, RequestRefusal> {
        let (mut allowed, mut is_known): (Vec<&str>, bool) = (Vec::new(), false);
        for (pattern, route, pool) in &self.routes {
            if !pattern.matches(path) {
                continue;
            }
            if route.allows_method(method) {
                return Ok(pool);
            }
            allowed.extend(route.method_names().into_iter().filter(|name| *name != WEBSOCKET));
            is_known = true;
        }
        match is_known {
            true => Err(RequestRefusal::Method(allowed.join(", "))),
            false => Err(RequestRefusal::NoRoute),
        }
    }

    fn upstream_request(
        &self,
        mut head: request::Parts,
        body: LingeringBody,
        target: &PathAndQuery,
        pool: &UpstreamPool,
    ) -> Result<Request<RequestBody>, RequestRefusal> {
        if !has_supported_transfer_codings(&head.headers) {
            return Err(RequestRefusal::TransferCoding);
        }
        // A server that does not read such a body takes it for the next request, which would bypass
        // the routes.
        if BODILESS.contains(&head.method) && !body.is_end_stream() {
            return Err(RequestRefusal::BodyNotAllowed);
        }
        let limit = self.limits.request_body_bytes;
        if body.size_hint().lower() > limit {
            return Err(RequestRefusal::TooLong { limit });
        }
        let upstream = pool.upstream();
        head.uri = upstream
            .target_for(target)
            .map_err(|_| RequestRefusal::Target(PathFault::UnencodedCharacter))?;
        head.version = Version::HTTP_11;
        let announced = announced_trailers(&head.headers);
        let accepts_trailers = accepts_trailers(&head.headers);
        remove_hop_by_hop(&mut head.headers);
        remove_fields(&mut head.headers, &REROUTING);
        if accepts_trailers {
            accept_trailers(&mut head.headers);
        }
        let mut trailers = TrailerRule::Drop;
        if let Some(names) = announced
            // A body with a length has no chunks, and so no place for trailers.
            && body.size_hint().exact().is_none()
        {
            head.headers.insert(header::TRAILER, names);
            trailers = TrailerRule::Pass { fields_max: self.limits.head_fields };
        }
        head.headers.insert(header::HOST, upstream.host_header());
        let body = LimitedBody::new(body, limit, self.limits.request_body_pace, trailers);
        Ok(Request::from_parts(head, Either::Left(body)))
    }

    async fn forward(
        &self,
        request: Request<RequestBody>,
        pool: &Arc<UpstreamPool>,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let method = request.method().clone();
        let trailers = match request.headers().contains_key(header::TE) {
            true => TrailerRule::Pass { fields_max: self.limits.head_fields },
            false => TrailerRule::Drop,
        };
        let started =
            tokio::time::timeout(self.limits.upstream_start, send_to_upstream(pool, request));
        let (response, connection) = started.await.map_err(|_| {
            let reason = format!("no answer within {:?}", self.limits.upstream_start);
            RequestRefusal::Upstream(UpstreamFailure::new(UpstreamFault::Slow, reason))
        })??;
        self.pass_on(response, connection, pool, &method, trailers)
    }

    /// Opens a WebSocket to the upstream on a connection of its own. An upstream that refuses it is
    /// answered for as for any request.
    async fn open_websocket(
        &self,
        handshake: ClientHandshake,
        mut request: Request<RequestBody>,
        pool: &Arc<UpstreamPool>,
        tunnels: &mpsc::Sender<Tunnel>,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let failure =
            |fault, reason: String| RequestRefusal::Upstream(UpstreamFailure::new(fault, reason));
        let tunnel_place = tunnels.try_reserve().map_err(|_| RequestRefusal::Busy)?;
        let key = UpstreamKey::offer(request.headers_mut());
        let opened = tokio::time::timeout(self.limits.upgrade, async {
            let mut connection = pool.open().await.map_err(RequestRefusal::Upstream)?;
            let sent = connection.send(request).await;
            let response = sent.map_err(|unsent| RequestRefusal::from_unanswered(*unsent))?;
            Ok::<_, RequestRefusal>((response, connection))
        });
        let (mut response, connection) = opened.await.map_err(|_| {
            failure(UpstreamFault::Slow, format!("no answer within {:?}", self.limits.upgrade))
        })??;
        let status = response.status();
        if key.is_accepted(&response) {
            let upstream = hyper::upgrade::on(&mut response);
            let (answer, tunnel) = handshake.accept(upstream, response.into_parts().0);
            tunnel_place.send(tunnel);
            return Ok(answer);
        }
        // In HTTP/2 a client would take any success for an accepted WebSocket.
        if status.is_success() || status.is_informational() {
            return Err(failure(UpstreamFault::BadUpgrade, format!("status {status}")));
        }
        self.pass_on(response, connection, pool, &Method::GET, TrailerRule::Drop)
    }

    /// Passes on an answer of the upstream.
    fn pass_on(
        &self,
        response: Response<Incoming>,
        connection: Connection,
        pool: &Arc<UpstreamPool>,
        method: &Method,
        trailers: TrailerRule,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        if !has_explicit_end(&response, method) {
            let reason = format!("status {}", response.status());
            let failure = UpstreamFailure::new(UpstreamFault::Unframed, reason);
            return Err(RequestRefusal::Upstream(failure));
        }
        let (mut head, body) = response.into_parts();
        let body = AnswerStream::new(body, connection, pool.clone(), &head.headers);
        head.version = Version::HTTP_11;
        let announced = announced_trailers(&head.headers);
        remove_hop_by_hop(&mut head.headers);
        if let Some(names) = announced
            && trailers != TrailerRule::Drop
        {
            head.headers.insert(header::TRAILER, names);
        }
        let location = head.headers.get(header::LOCATION);
        let path = location.and_then(|location| pool.upstream().path_of_redirect(location));
        if let Some(path) = path {
            head.headers.insert(header::LOCATION, path);
        }
        let pace = BodyPace::without_rate(self.limits.response_body_pause);
        let body = LimitedBody::new(body, u64::MAX, pace, trailers);
        Ok(Response::from_parts(head, Either::Left(body)))
    }
}

/// Methods whose content has no meaning (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.7).
const BODILESS: [Method; 4] = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];
/// The interval between two sweeps of idle connections, which is short compared with the time that
/// one is kept.
const CLOSE_STALE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Sends a request over a pooled or a new connection. It is sent a second time, on a new
/// connection, only if nothing of it was written; or if its method is idempotent (RFC 9110 section
/// 9.2.2), it has no body and no bytes were received.
async fn send_to_upstream(
    pool: &UpstreamPool,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Connection), RequestRefusal> {
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    let mut request = request;
    if let Some(mut kept) = pool.take_idle(is_repeatable) {
        let again = is_repeatable.then(|| request.headers().clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        match kept.send(request).await {
            Ok(response) => return Ok((response, kept)),
            Err(unsent) => request = repeatable_request(*unsent, method, uri, again)?,
        }
    }
    let mut fresh = pool.open().await.map_err(RequestRefusal::Upstream)?;
    match fresh.send(request).await {
        Ok(response) => Ok((response, fresh)),
        Err(unsent) => Err(RequestRefusal::from_unanswered(*unsent)),
    }
}

/// Returns the request to send again, or a refusal if repeating it is not safe.
fn repeatable_request(
    mut unsent: UnansweredRequest,
    method: Method,
    uri: Uri,
    headers: Option<HeaderMap>,
) -> Result<Request<RequestBody>, RequestRefusal> {
    if let Some(request) = unsent.request.take() {
        return Ok(request);
    }
    let Some(headers) = headers.filter(|_| unsent.received == 0) else {
        return Err(RequestRefusal::from_unanswered(unsent));
    };
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.headers) = (method, uri, headers);
    Ok(bodiless_request(head))
}

fn changed_model_refusal() -> RequestRefusal {
    let reason = "it has already named another model";
    RequestRefusal::Upstream(UpstreamFailure::new(UpstreamFault::ModelChanged, reason))
}

/// Checks that there is exactly one valid `Host` (RFC 9112 section 3.2); HTTP/1.0 may omit it.
fn check_host(head: &request::Parts) -> Result<(), RequestRefusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let is_host = |host: &header::HeaderValue| {
        let text = host.to_str().unwrap_or("@");
        text.is_empty() || text.parse::<Authority>().is_ok_and(|host| !host.as_str().contains('@'))
    };
    match (hosts.next(), hosts.next()) {
        (Some(only), None) if is_host(only) => Ok(()),
        (None, _) if head.version < Version::HTTP_11 => Ok(()),
        _ => Err(RequestRefusal::Host),
    }
}

/// Returns path and query as they are matched and sent. The authority of an absolute target is
/// ignored: the gateway decides where a request goes (RFC 9112 section 3.2.2).
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
    text.parse().map_err(|_| PathFault::UnencodedCharacter)
}
