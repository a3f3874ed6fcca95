//! The reverse proxy, which streams the bodies of requests and answers.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Instant,
};

use bytes::Bytes;
use confide_channel::EVIDENCE_PATH;
use confide_http::{BusyGuard, ClientHandshake, HandshakeKey, Peer, is_websocket_request};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Version, header, request, uri::PathAndQuery,
};
use http_body::Body;
use http_body_util::{Either, Full};

use crate::{
    access_log::AccessLog,
    answer::{self, AnswerBody},
    answer_shape::AnswerShape,
    authorizer::{Authorizer, Grant, RequestTerms},
    body::LimitedBody,
    buffer::BodyBuffers,
    cache_salt::{self, CacheSalt},
    choice_error::ChoiceError,
    client_body::ClientBody,
    client_connection::ClientConnection,
    configuration::{GatewayConfiguration, WELL_KNOWN_PATH},
    connection::Connection,
    encrypted_request::{EncryptedRequests, open_body},
    error::GatewayError,
    fault::{UpstreamFailure, UpstreamFault},
    fresh_evidence, http2_head, key_route,
    limits::GatewayLimits,
    manifest::ModelChange,
    metered_body::{AnswerUses, MeteredBody, meter_answer},
    metrics::GaugeCount,
    model_field::ModelFieldError,
    observation::{ObservedBody, RequestObservation, Telemetry},
    openable_receipt::OpenableRequest,
    operation::Operation,
    path::{self, PathFault},
    receipt_client::ReceiptClient,
    receipt_draft::ReceiptDraft,
    receipt_fault::ReceiptFault,
    receipt_service::{self, ReceiptService},
    refusal::RequestRefusal,
    request_head,
    request_model::{RequestModel, check_json_headers, find_model},
    route::{PathPattern, Route, WEBSOCKET, websocket_method},
    sealed_answer::{self, AnswerTerms, GatewayBody},
    server_group::{Destination, ServerGroup, ServerPermit, ServerSet},
    trailers::TrailerRule,
    upstream::Upstream,
    upstream_answer::{AnswerRules, hold_head},
    upstream_exchange::{UnansweredAttempt, send_to_upstream},
    upstream_request::RequestBody,
    websocket_relay::WebSocketRelay,
};

/// The reverse proxy: routes, groups of model servers, limits.
pub(crate) struct Proxy {
    /// The routes, the most specific pattern first.
    routes: Vec<(PathPattern, Route, Arc<ServerGroup>)>,
    groups: Vec<Arc<ServerGroup>>,
    model_change: Arc<ModelChange>,
    /// Whether the configuration has the model of any server.
    expects_model: bool,
    buffers: BodyBuffers,
    description: Bytes,
    limits: GatewayLimits,
    /// The shape of answers, if they have one.
    shape: Option<AnswerShape>,
    log: Option<AccessLog>,
    authorizer: Option<Arc<Authorizer>>,
    telemetry: Option<Arc<Telemetry>>,
    receipts: Option<Arc<ReceiptService>>,
    encrypted_requests: Option<Arc<EncryptedRequests>>,
    /// Returns Unix seconds, for the `Date` of answers.
    clock: Option<fn() -> u64>,
}

impl Proxy {
    /// Prepares the routes and the groups of a configuration.
    ///
    /// # Errors
    /// [`GatewayError`] for a malformed route or server, or a route to a group without a server.
    pub(crate) fn new(
        configuration: &GatewayConfiguration,
        simulated: bool,
        limits: GatewayLimits,
    ) -> Result<Self, GatewayError> {
        let model_change = Arc::<ModelChange>::default();
        let groups = ServerGroup::from_configuration(configuration, &model_change, limits)?;
        let mut routes = Vec::new();
        for route in &configuration.routes {
            let group = groups.iter().find(|group| group.name() == route.group);
            let group = group.ok_or_else(|| GatewayError::UnknownGroup {
                route: route.path.clone(),
                group: route.group.clone(),
            })?;
            routes.push((route.parse_pattern()?, route.clone(), group.clone()));
        }
        routes.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let description = configuration.description_json(simulated).into();
        let expects_model = groups.iter().any(|group| group.expects_model());
        let buffers = BodyBuffers::new(limits);
        Ok(Self {
            routes,
            groups,
            model_change,
            expects_model,
            buffers,
            description,
            limits,
            shape: configuration.answer_shape,
            log: None,
            authorizer: None,
            telemetry: None,
            receipts: None,
            encrypted_requests: None,
            clock: None,
        })
    }

    pub(crate) fn with_clock(mut self, clock: fn() -> u64) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The clock of the `Date` field, in Unix seconds.
    pub(crate) fn clock(&self) -> Option<fn() -> u64> {
        self.clock
    }

    pub(crate) fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.log = log;
        self
    }

    pub(crate) fn with_authorizer(mut self, authorizer: Option<Arc<Authorizer>>) -> Self {
        self.authorizer = authorizer;
        self
    }

    pub(crate) fn with_telemetry(mut self, telemetry: Option<Arc<Telemetry>>) -> Self {
        self.telemetry = telemetry;
        self
    }

    pub(crate) fn with_receipts(
        mut self,
        receipts: Option<Arc<ReceiptService>>,
        encrypted_requests: Option<Arc<EncryptedRequests>>,
    ) -> Self {
        (self.receipts, self.encrypted_requests) = (receipts, encrypted_requests);
        self
    }

    /// Counts a connection as open while the returned value lives.
    pub(crate) fn count_connection(&self) -> Option<GaugeCount> {
        self.telemetry.as_ref().map(|telemetry| telemetry.metrics.count_connection())
    }

    /// Whether the configuration has the model of any server.
    pub(crate) fn expects_model(&self) -> bool {
        self.expects_model
    }

    /// Whether answers are read for their tokens even without API keys.
    fn counts_tokens(&self) -> bool {
        self.telemetry.as_ref().is_some_and(|telemetry| telemetry.counts_tokens)
    }

    /// What opens encrypted requests, if the gateway has it.
    pub(crate) fn encrypted_requests(&self) -> Option<&EncryptedRequests> {
        self.encrypted_requests.as_deref()
    }

    pub(crate) fn buffers(&self) -> &BodyBuffers {
        &self.buffers
    }

    pub(crate) fn groups(&self) -> &[Arc<ServerGroup>] {
        &self.groups
    }

    /// Resolves when a model server has named another model, so that the evidence attests a false
    /// digest.
    pub(crate) async fn wait_for_model_change(&self) {
        self.model_change.wait().await;
    }

    /// The same for a connection to keep: it takes room only if the configuration has a model.
    pub(crate) fn watch_model(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match self.expects_model {
            true => Box::pin(self.wait_for_model_change()),
            false => Box::pin(std::future::pending()),
        }
    }

    /// Closes idle connections, checks the health of servers, asks them for their models, and drops
    /// keys that have ended, at intervals. A slow server does not delay the others.
    pub(crate) async fn maintain_servers(&self) -> Infallible {
        let mut loops: Vec<Pin<Box<dyn Future<Output = Infallible> + Send + '_>>> = Vec::new();
        loops.push(Box::pin(self.report_model_change()));
        if let Some(receipts) = &self.receipts {
            loops.push(Box::pin(receipts.signer().drop_ended_keys_at_intervals()));
        }
        for group in &self.groups {
            for index in 0..group.servers().len() {
                loops.push(Box::pin(group.maintain_server(index)));
            }
        }
        poll_fn(|cx| {
            for server in &mut loops {
                let _ = server.as_mut().poll(cx);
            }
            Poll::Pending
        })
        .await
    }

    /// Shows a changed model in the metrics, for as long as this configuration is in use.
    async fn report_model_change(&self) -> Infallible {
        self.model_change.wait().await;
        let telemetry = self.telemetry.as_ref();
        let _shown = telemetry.map(|telemetry| telemetry.metrics.count_changed_model());
        std::future::pending().await
    }

    /// Refuses a request before it is read.
    pub(crate) fn refuse(
        &self,
        mut request: Request<ClientBody>,
        refusal: RequestRefusal,
    ) -> Response<GatewayBody> {
        let (telemetry, method) = (self.telemetry.as_ref(), request.method().clone());
        let began = Instant::now();
        let mut observation = RequestObservation::begin(telemetry, &method, request.headers_mut());
        let response = self.mark(refusal.into_response(&mut observation));
        if let Some(log) = &self.log {
            let pattern = self.pattern_of(request.uri().path());
            log.record_answer(&method, pattern, response.status(), began.elapsed());
        }
        observation.observe_answer(response).map(GatewayBody::clear)
    }

    /// Marks an answer with the keyset of receipts, if there is one.
    fn mark(&self, mut response: Response<AnswerBody>) -> Response<AnswerBody> {
        if let Some(receipts) = &self.receipts {
            receipts.mark_answer(response.headers_mut());
        }
        response
    }

    /// Answers one request, with an error response if it fails before the answer has begun.
    ///
    /// If the answer accepts a WebSocket, its relay is queued in the connection.
    pub(crate) async fn answer(
        &self,
        request: Request<ClientBody>,
        connection: ClientConnection<'_>,
    ) -> Response<GatewayBody> {
        let mut terms = None;
        let answer = self.answer_observed(request, connection, &mut terms).await;
        match terms {
            Some(terms) => terms.seal(answer),
            None => sealed_answer::pass_clear(answer, self.encrypted_requests.is_some()),
        }
    }

    /// Answers one request, and sets the terms by which its answer is encrypted, if it is.
    async fn answer_observed(
        &self,
        mut request: Request<ClientBody>,
        connection: ClientConnection<'_>,
        terms: &mut Option<Box<AnswerTerms>>,
    ) -> Response<ObservedBody> {
        let (telemetry, method) = (self.telemetry.as_ref(), request.method().clone());
        let mut observation = RequestObservation::begin(telemetry, &method, request.headers_mut());
        let Some(log) = &self.log else {
            let response = self.answer_unlogged(request, connection, &mut observation, terms).await;
            return observation.observe_answer(response);
        };
        let began = Instant::now();
        let pattern = self.pattern_of(request.uri().path()).to_owned();
        let response = self.answer_unlogged(request, connection, &mut observation, terms).await;
        log.record_answer(&method, &pattern, response.status(), began.elapsed());
        observation.observe_answer(response)
    }

    /// The pattern of the route to which a path belongs, for the log: it holds no identifier.
    fn pattern_of(&self, path: &str) -> &str {
        match path::normalise(path) {
            Ok(path) if path == WELL_KNOWN_PATH => WELL_KNOWN_PATH,
            Ok(path) if path == EVIDENCE_PATH => EVIDENCE_PATH,
            Ok(path) => {
                let keys = || self.encrypted_requests()?.find_keys_path(&path);
                let own = self.receipts.as_ref().and_then(|_| receipt_service::find_route(&path));
                let route = || self.routes.iter().find(|(pattern, ..)| pattern.matches(&path));
                own.or_else(keys)
                    .unwrap_or_else(|| route().map_or("/**", |(_, route, _)| &route.path))
            }
            Err(_) => "/**",
        }
    }

    async fn answer_unlogged(
        &self,
        request: Request<ClientBody>,
        connection: ClientConnection<'_>,
        observation: &mut RequestObservation,
        terms: &mut Option<Box<AnswerTerms>>,
    ) -> Response<AnswerBody> {
        let (method, version) = (request.method().clone(), request.version());
        let outcome = self.answer_or_refuse(request, connection, observation, terms).await;
        let outcome = outcome.and_then(|response| match version == Version::HTTP_10 {
            true if response.body().size_hint().exact().is_none() => {
                Err(RequestRefusal::StreamOverHttp10)
            }
            _ => Ok(response),
        });
        let response = outcome.unwrap_or_else(|refusal| refusal.into_response(observation));
        let response = self.mark(response);
        // The query and the bodies are never logged, because they may contain secrets.
        tracing::debug!(%method, status = response.status().as_u16(), "answered");
        response
    }

    async fn answer_or_refuse(
        &self,
        request: Request<ClientBody>,
        connection: ClientConnection<'_>,
        observation: &mut RequestObservation,
        terms: &mut Option<Box<AnswerTerms>>,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let ClientConnection { peer, relays, evidence } = connection;
        let arrived = self.shape.map(|_| tokio::time::Instant::now());
        let (mut head, mut body) = request.into_parts();
        let is_websocket = is_websocket_request(&head);
        let target = self.check_head(&mut head, is_websocket)?;
        if target.path() == EVIDENCE_PATH {
            observation.record_route(EVIDENCE_PATH);
            let answer = fresh_evidence::answer(evidence, &head.method, body, &self.limits);
            return Box::pin(answer).await;
        }
        if let Some(own) = self.answer_own_path(&head, &target, peer, observation) {
            return own.await;
        }
        let method = if is_websocket { websocket_method() } else { head.method.clone() };
        let (route, group) = self.find_route(&method, target.path())?;
        observation.record_route(&route.path);
        self.note_client(&mut head, &target, group, peer)?;
        let grant = self.authorize(&mut head, &method, peer, target.path(), route).await?;
        let requests = self.encrypted_requests();
        body = open_body(requests, &mut head, body, &self.buffers, peer, terms).await?;
        if let Some(list) = key_route::find_own_list(route, group, &method, target.path()) {
            return Ok(meter_answer(AnswerUses { grant, ..AnswerUses::default() }, list?));
        }
        let handshake =
            is_websocket.then(|| request_head::take_handshake(&mut head)).transpose()?;
        if head.version == Version::HTTP_2
            && request_head::BODILESS.contains(&head.method)
            && !is_websocket
        {
            let deadline = self.limits.request_body_pace.pause;
            http2_head::wait_for_empty_body(&mut body, deadline).await?;
        }
        let (head, body) = request_head::check_and_strip(head, body, &self.limits)?;
        let destination = key_route::find_destination(&head, &target, route, group).await?;
        let (mut answer, relay) = {
            // Pinned here: an async function that takes it by value would hold it twice.
            let answer = pin!(async {
                match handshake {
                    Some(handshake) => {
                        let place = relays.reserve().ok_or(RequestRefusal::Busy)?;
                        let request = Request::from_parts(head, Either::Left(body));
                        let opened =
                            self.open_websocket(handshake, request, destination, peer, observation);
                        // Boxed, because other requests do not need the space.
                        let (answer, relay) = Box::pin(opened).await?;
                        Ok((answer, relay.map(|relay| (place, relay))))
                    }
                    None => {
                        let grant = grant.as_ref();
                        self.forward(head, body, destination, peer, grant, observation)
                            .await
                            .map(|answer| (answer, None))
                    }
                }
            });
            self.answer_unless_model_changes(answer).await?
        };
        hold_head(arrived, &mut answer).await;
        Ok(match relay {
            None => self.meter(answer, grant, observation),
            Some((place, relay)) => relay.start(answer, place, grant),
        })
    }

    /// The answer of a path that the gateway serves itself and that takes no body, if this is one.
    fn answer_own_path<'a>(
        &'a self,
        head: &'a request::Parts,
        target: &'a PathAndQuery,
        peer: Peer,
        observation: &mut RequestObservation,
    ) -> Option<Pin<Box<OwnAnswer<'a>>>> {
        if target.path() == WELL_KNOWN_PATH {
            observation.record_route(WELL_KNOWN_PATH);
            return Some(Box::pin(async { self.describe_gateway(&head.method) }));
        }
        if let Some(requests) = self.encrypted_requests()
            && let Some(path) = requests.find_keys_path(target.path())
        {
            observation.record_route(path);
            return Some(Box::pin(async move { requests.answer_keys(path, &head.method) }));
        }
        let receipts = self.receipts.as_ref()?;
        observation.record_route(receipt_service::find_route(target.path())?);
        Some(Box::pin(receipts.answer(&head.method, &head.headers, target, peer)))
    }

    /// Checks what is the same for all routes, and returns the target in its normal form.
    pub(crate) fn check_head(
        &self,
        head: &mut request::Parts,
        is_websocket: bool,
    ) -> Result<PathAndQuery, RequestRefusal> {
        request_head::check_method(&head.method, is_websocket)?;
        if head.version == Version::HTTP_2 {
            http2_head::normalise_head(head, self.limits.head_fields)?;
        }
        request_head::check_host(head)?;
        let target = request_head::normalise_target(&head.uri).map_err(RequestRefusal::Target)?;
        match self.model_change.has_happened() {
            true => Err(RequestRefusal::changed_model()),
            false => Ok(target),
        }
    }

    async fn answer_unless_model_changes<T>(
        &self,
        answer: impl Future<Output = Result<T, RequestRefusal>>,
    ) -> Result<T, RequestRefusal> {
        if !self.expects_model {
            return answer.await;
        }
        tokio::select! {
            biased;
            () = self.model_change.wait() => Err(RequestRefusal::changed_model()),
            answer = answer => answer,
        }
    }

    /// Answers the request for the gateway's configuration.
    fn describe_gateway(&self, method: &Method) -> Result<Response<AnswerBody>, RequestRefusal> {
        match *method {
            Method::GET | Method::HEAD => {
                Ok(answer::json_response(StatusCode::OK, self.description.clone()))
            }
            _ => Err(RequestRefusal::Method("GET, HEAD".into())),
        }
    }

    /// Notes whose receipt and whose part of a prefix cache a request is for, before the authorizer
    /// removes its key.
    fn note_client(
        &self,
        head: &mut request::Parts,
        target: &PathAndQuery,
        group: &ServerGroup,
        peer: Peer,
    ) -> Result<(), ReceiptFault> {
        // Taken out also where there are no receipts: a model server has no use for a secret.
        let openable = OpenableRequest::take_from(&mut head.headers)?;
        if let Some(receipts) = &self.receipts {
            receipts.note_client(head, target.path(), peer, openable);
        }
        if group.salts_caches() && cache_salt::is_salted(&head.method, target.path()) {
            let salt = CacheSalt::of_client(&head.headers, peer, self.authorizer.is_some());
            head.extensions.insert(salt);
        }
        Ok(())
    }

    /// Authorises a request, whose key is removed, if the gateway has an authorizer. `method` is
    /// that of the route.
    async fn authorize(
        &self,
        head: &mut request::Parts,
        method: &Method,
        peer: Peer,
        path: &str,
        route: &Route,
    ) -> Result<Option<Grant>, RequestRefusal> {
        let Some(authorizer) = &self.authorizer else { return Ok(None) };
        let terms = RequestTerms { method, path, route: &route.path };
        let grant = authorizer.authorize(&mut head.headers, peer, &terms).await;
        let grant = grant.map_err(RequestRefusal::Key)?;
        if method.as_str() == WEBSOCKET && grant.limits_models() {
            // Its messages may name any model, and are not read.
            grant.check_model(method, None).map_err(RequestRefusal::Key)?;
        }
        Ok(Some(grant))
    }

    /// Finds the route of a request, and its group of model servers.
    fn find_route(
        &self,
        method: &Method,
        path: &str,
    ) -> Result<(&Route, &Arc<ServerGroup>), RequestRefusal> {
        let (mut allowed, mut is_known): (Vec<&str>, bool) = (Vec::new(), false);
        for (pattern, route, group) in &self.routes {
            if !pattern.matches(path) {
                continue;
            }
            if route.allows_method(method) {
                return Ok((route, group));
            }
            allowed.extend(route.method_names().into_iter().filter(|name| *name != WEBSOCKET));
            is_known = true;
        }
        match is_known {
            true => Err(RequestRefusal::Method(allowed.join(", "))),
            false => Err(RequestRefusal::NoRoute),
        }
    }

    /// Counts the tokens of an answer for its API key, and for metrics.
    fn meter(
        &self,
        mut answer: Response<AnswerBody>,
        grant: Option<Grant>,
        observation: &RequestObservation,
    ) -> Response<AnswerBody> {
        let is_counted = self.counts_tokens() || grant.is_some();
        let report = observation.token_report().filter(|_| is_counted);
        let receipt = match self.receipts {
            Some(_) => ReceiptDraft::take_from(&mut answer),
            None => None,
        };
        meter_answer(AnswerUses { grant, report, receipt }, answer)
    }

    /// Sends a request to a server of the group that may take it, and passes on the answer.
    async fn forward(
        &self,
        mut head: request::Parts,
        body: LimitedBody<ClientBody>,
        destination: Destination<'_>,
        peer: Peer,
        grant: Option<&Grant>,
        observation: &mut RequestObservation,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let Destination { target, group, .. } = destination;
        let is_read =
            self.counts_tokens() && Operation::from_request(&head.method, target.path()).is_some();
        if is_read || self.shape.is_some() {
            let identity = HeaderValue::from_static("identity");
            head.headers.insert(header::ACCEPT_ENCODING, identity);
        }
        let limits_models = grant.is_some_and(Grant::limits_models);
        let client = head.extensions.remove::<ReceiptClient>();
        let salt = CacheSalt::take_from(&mut head, group.salts_caches(), target.path())?;
        let is_streamed = !group.reads_bodies() && !limits_models;
        if is_streamed && client.is_none() && salt.is_none() {
            observation.record_operation(&head.method, target.path(), None);
            let candidates = destination.find_candidates(&RequestModel::Absent);
            let request = Box::new(Request::from_parts(head, Either::Left(body)));
            return self.send_to_group(request, destination, candidates, peer, observation).await;
        }
        // Boxed, because requests that are not read whole do not need the space.
        let ReadRequest { body, model, candidates } =
            Box::pin(self.read_request(&head, body, destination, peer, grant)).await?;
        observation.record_operation(&head.method, target.path(), model.name());
        let salted = match salt {
            Some(salt) => Some(Box::pin(salt.write_to(&mut head.headers, &body)).await?),
            None => None,
        };
        let draft = match (&self.receipts, client) {
            (Some(receipts), Some(client)) => {
                let (signer, sent) = (receipts.signer().clone(), salted.as_deref());
                let begun =
                    ReceiptDraft::begin(signer, client, &head.headers, target.path(), &body, sent);
                Some(Box::new(Box::pin(begun).await))
            }
            _ => None,
        };
        let body = Full::new(salted.unwrap_or(body));
        let request = Box::new(Request::from_parts(head, Either::Right(body)));
        let sent = self.send_to_group(request, destination, candidates, peer, observation);
        let mut answer = sent.await?;
        if let Some(draft) = draft {
            answer.extensions_mut().insert(draft);
        }
        Ok(answer)
    }

    /// Reads a body, and finds the servers that may take the request.
    async fn read_request(
        &self,
        head: &request::Parts,
        body: LimitedBody<ClientBody>,
        destination: Destination<'_>,
        peer: Peer,
        grant: Option<&Grant>,
    ) -> Result<ReadRequest, RequestRefusal> {
        let grant = grant.filter(|grant| grant.limits_models());
        let needs_model = destination.group.lists_models() || grant.is_some();
        if needs_model && !body.is_end_stream() {
            check_json_headers(&head.headers)?;
        }
        let body = self.buffers.read_whole(body, peer).await?;
        let model = match needs_model {
            true => find_model(destination.target.path(), &head.headers, &body).await?,
            false => RequestModel::Absent,
        };
        if let Some(grant) = grant {
            grant.check_model(&head.method, model.name()).map_err(RequestRefusal::Key)?;
        }
        let candidates = destination.find_candidates(&model);
        match model {
            _ if !candidates.is_empty() => Ok(ReadRequest { body, model, candidates }),
            RequestModel::Named(_) => Err(ChoiceError::ModelNotFound.into()),
            RequestModel::Absent => {
                Err(ChoiceError::ModelNotNamed(ModelFieldError::Missing).into())
            }
        }
    }

    /// Sends a request to one of the candidates. If the server took no byte of it, the next one is
    /// tried, each at most once.
    async fn send_to_group(
        &self,
        mut request: Box<Request<RequestBody>>,
        Destination { target, group, .. }: Destination<'_>,
        mut candidates: ServerSet,
        peer: Peer,
        observation: &mut RequestObservation,
    ) -> Result<Response<AnswerBody>, RequestRefusal> {
        let (method, began) = (request.method().clone(), tokio::time::Instant::now());
        // A shaped answer has none: their size would show.
        let trailers = match request.headers().contains_key(header::TE) && self.shape.is_none() {
            true => TrailerRule::Pass { fields_max: self.limits.head_fields },
            false => TrailerRule::Drop,
        };
        loop {
            let permit = group.enter(candidates, peer, began).await?;
            candidates.remove(permit.index());
            self.address_to(permit.pool().upstream(), &mut request, target)?;
            let sent = tokio::time::timeout(
                self.limits.upstream_start,
                send_to_upstream(permit.pool(), request, observation),
            )
            .await;
            let UnansweredAttempt { refusal, unsent } = match sent {
                Ok(Ok(response)) => {
                    let rules = self.answer_rules(&method, trailers);
                    return rules.pass_on(response, permit).map_err(RequestRefusal::Upstream);
                }
                Ok(Err(failed)) => *failed,
                Err(_) => {
                    let reason = format!("no answer within {:?}", self.limits.upstream_start);
                    let failure = UpstreamFailure::new(UpstreamFault::Slow, reason);
                    return Err(RequestRefusal::Upstream(failure));
                }
            };
            let Some(unsent) = unsent else { return Err(refusal) };
            permit.record_connect_failure();
            if candidates.is_empty() || self.model_change.has_happened() {
                return Err(refusal);
            }
            if let RequestRefusal::Upstream(UpstreamFailure { reason, .. }) = &refusal {
                tracing::warn!(%reason, "{NEXT_SERVER}");
            }
            request = unsent;
        }
    }

    /// Directs a request to a server, and presents the key for that server, if there is one.
    fn address_to(
        &self,
        upstream: &Upstream,
        request: &mut Request<RequestBody>,
        target: &PathAndQuery,
    ) -> Result<(), RequestRefusal> {
        *request.uri_mut() = upstream
            .target_for(target)
            .map_err(|_| RequestRefusal::Target(PathFault::UnencodedCharacter))?;
        request.headers_mut().insert(header::HOST, upstream.host_header());
        if let Some(authorizer) = &self.authorizer {
            authorizer.insert_upstream_key(request.headers_mut());
        }
        Ok(())
    }

    /// Opens a WebSocket to a server of the group, on a connection of its own. If the server refuses,
    /// its answer is passed on.
    async fn open_websocket(
        &self,
        handshake: ClientHandshake,
        mut request: Request<RequestBody>,
        Destination { target, group, .. }: Destination<'_>,
        peer: Peer,
        observation: &mut RequestObservation,
    ) -> Result<(Response<AnswerBody>, Option<WebSocketRelay>), RequestRefusal> {
        let failure =
            |fault, reason: String| RequestRefusal::Upstream(UpstreamFailure::new(fault, reason));
        // The place of a WebSocket in HTTP/2.
        let place = request.extensions_mut().remove::<Arc<BusyGuard>>();
        let (permit, connection) = self.open_connection(group, peer).await?;
        self.address_to(permit.pool().upstream(), &mut request, target)?;
        let key = HandshakeKey::offer(request.headers_mut());
        observation.record_sent();
        let sent =
            tokio::time::timeout(self.limits.upgrade, connection.send(Box::new(request))).await;
        let sent = sent.map_err(|_| {
            failure(UpstreamFault::Slow, format!("no answer within {:?}", self.limits.upgrade))
        })?;
        let response = sent.map_err(RequestRefusal::from_unanswered)?;
        let status = response.status();
        if key.is_accepted(&response) {
            let (mut head, upstream) = response.into_parts();
            let upstream = upstream
                .into_upgraded()
                .ok_or_else(|| failure(UpstreamFault::BadUpgrade, "over HTTP/2".into()))?;
            let client = handshake.accept(&mut head);
            let relay = WebSocketRelay::new(client, upstream, permit, place);
            let body = MeteredBody::without_meter(Either::Right(Full::default()));
            return Ok((Response::from_parts(head, body), Some(relay)));
        }
        // In HTTP/2 a client would take any success for an accepted WebSocket.
        if status.is_success() || status.is_informational() {
            return Err(failure(UpstreamFault::BadUpgrade, format!("status {status}")));
        }
        let rules = self.answer_rules(&Method::GET, TrailerRule::Drop);
        Ok((rules.pass_on(response, permit).map_err(RequestRefusal::Upstream)?, None))
    }

    /// Opens a connection to a server of the group that may take a request without a model. If one
    /// cannot be connected to, the next one is tried, each at most once.
    async fn open_connection(
        &self,
        group: &Arc<ServerGroup>,
        peer: Peer,
    ) -> Result<(ServerPermit, Connection), RequestRefusal> {
        let mut candidates = group.find_candidates(&RequestModel::Absent);
        if candidates.is_empty() {
            return Err(ChoiceError::ModelNotNamed(ModelFieldError::Missing).into());
        }
        let began = tokio::time::Instant::now();
        loop {
            let permit = group.enter(candidates, peer, began).await?;
            candidates.remove(permit.index());
            match permit.pool().open_http1().await {
                Ok(connection) => return Ok((permit, connection)),
                Err(failure) => {
                    permit.record_connect_failure();
                    if candidates.is_empty() || self.model_change.has_happened() {
                        return Err(RequestRefusal::Upstream(failure));
                    }
                    let UpstreamFailure { reason, .. } = failure;
                    tracing::warn!(%reason, "{NEXT_SERVER}");
                }
            }
        }
    }

    /// The rules by which the answers to requests of a method are passed on.
    fn answer_rules<'a>(&'a self, method: &'a Method, trailers: TrailerRule) -> AnswerRules<'a> {
        AnswerRules {
            method,
            trailers,
            pause: self.limits.response_body_pause,
            shape: self.shape.as_ref(),
            has_receipt: self.receipts.is_some(),
        }
    }
}

/// The line of the log for a server that could not be used.
const NEXT_SERVER: &str = "a model server took no request: the next one is tried";

/// An answer of the gateway's own.
type OwnAnswer<'a> = dyn Future<Output = Result<Response<AnswerBody>, RequestRefusal>> + Send + 'a;

/// A request whose body was read whole.
struct ReadRequest {
    body: Bytes,
    model: RequestModel,
    candidates: ServerSet,
}
