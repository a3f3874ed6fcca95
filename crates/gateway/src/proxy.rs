//! One request in, one request out, both bodies streamed.

use std::time::Instant;

use bytes::Bytes;
use confide_forward::{BodyPace, PaceFault, codings_are_undone, end_is_marked, remove_hop_by_hop};
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use http_body_util::Either;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error as ClientError, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{
    AccessLog, Configuration, Limits, Upstream, WELL_KNOWN_PATH,
    answer::{self, AnswerBody},
    body::{BodyFault, Guarded, fault_behind},
    linger::Lingering,
};

/// The reverse proxy: routes, pooled connections to the upstreams, limits.
pub(crate) struct Proxy {
    client: Client<HttpConnector, Guarded<Lingering>>,
    /// Longest prefix first.
    routes: Vec<(String, Upstream, header::HeaderValue)>,
    description: Bytes,
    limits: Limits,
    log: Option<AccessLog>,
}

impl Proxy {
    pub(crate) fn new(configuration: &Configuration, simulated: bool, limits: Limits) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.upstream_connect));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.upstream_idle)
            .pool_max_idle_per_host(limits.upstream_idle_connections)
            .set_host(false)
            .build(connector);
        let mut routes: Vec<_> = configuration
            .routes
            .iter()
            .map(|route| {
                (route.prefix.clone(), route.upstream.clone(), route.upstream.host_header())
            })
            .collect();
        routes.sort_by_key(|(prefix, ..)| std::cmp::Reverse(prefix.len()));
        let description = configuration.description(simulated).into();
        Self { client, routes, description, limits, log: None }
    }

    pub(crate) fn with_access_log(mut self, log: Option<AccessLog>) -> Self {
        self.log = log;
        self
    }

    /// Answers one request; what goes wrong is an answer too, unless the answer already began.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let Some(log) = &self.log else { return self.answer_unlogged(request).await };
        let (began, method) = (Instant::now(), request.method().clone());
        let path = request.uri().path().to_owned();
        let response = self.answer_unlogged(request).await;
        log.answered(&method, &path, response.status(), began.elapsed());
        response
    }

    async fn answer_unlogged(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        if request.uri().path() == WELL_KNOWN_PATH {
            if !matches!(*request.method(), Method::GET | Method::HEAD) {
                return Refused::Method.into_response();
            }
            return answer::json(StatusCode::OK, self.description.clone());
        }
        let (method, version) = (request.method().clone(), request.version());
        let outcome = match self.outgoing(request) {
            Ok((outgoing, upstream)) => self.forward(outgoing, upstream, &method).await,
            Err(refused) => Err(refused),
        };
        let outcome = outcome.and_then(|response| match version == Version::HTTP_10 {
            true if response.body().size_hint().exact().is_none() => Err(Refused::OldVersion),
            _ => Ok(response),
        });
        let response = outcome.unwrap_or_else(|refused| refused.into_response());
        // Never the query and never a body: either may hold what the gateway is there to protect.
        tracing::debug!(%method, status = response.status().as_u16(), "answered");
        response
    }

    fn outgoing(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Request<Guarded<Lingering>>, &Upstream), Refused> {
        let (mut head, body) = request.into_parts();
        let body = Lingering::new(body, &head.headers, self.limits.request_body_linger);
        // TRACE would have the keys in a request's fields echoed (RFC 9110 section 9.3.8).
        if matches!(head.method, Method::CONNECT | Method::TRACE) {
            return Err(Refused::Method);
        }
        if !codings_are_undone(&head.headers) {
            return Err(Refused::Coding);
        }
        let limit = self.limits.request_body_bytes;
        if body.size_hint().lower() > limit {
            return Err(Refused::TooLong { limit });
        }
        let path = head.uri.path();
        let (_, upstream, host) =
            self.routes.iter().find(|(prefix, ..)| covers(prefix, path)).ok_or(Refused::NoRoute)?;
        head.uri = upstream.uri_for(&head.uri).map_err(|_| Refused::NoRoute)?;
        head.version = Version::HTTP_11;
        remove_hop_by_hop(&mut head.headers);
        head.headers.insert(header::HOST, host.clone());
        let body = Guarded::new(body, limit, self.limits.request_body_pace);
        Ok((Request::from_parts(head, body), upstream))
    }

    async fn forward(
        &self,
        outgoing: Request<Guarded<Lingering>>,
        upstream: &Upstream,
        method: &Method,
    ) -> Result<Response<AnswerBody>, Refused> {
        let started =
            tokio::time::timeout(self.limits.upstream_start, self.client.request(outgoing));
        let response = match started.await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Refused::from_client(&error)),
            Err(_) => return Err(Refused::Slow),
        };
        if !end_is_marked(&response, method) {
            return Err(Refused::Unframed);
        }
        let (mut head, body) = response.into_parts();
        head.version = Version::HTTP_11;
        remove_hop_by_hop(&mut head.headers);
        let location = head.headers.get(header::LOCATION);
        if let Some(path) = location.and_then(|location| upstream.path_of_redirect(location)) {
            head.headers.insert(header::LOCATION, path);
        }
        let pace = BodyPace::any_rate(self.limits.response_body_pause);
        let body = Guarded::new(body, u64::MAX, pace);
        Ok(Response::from_parts(head, Either::Left(body)))
    }
}

/// `/v1` covers `/v1` and `/v1/models`, not `/v10`; `/` covers everything.
fn covers(prefix: &str, path: &str) -> bool {
    let bare = prefix.trim_end_matches('/');
    path.strip_prefix(bare).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Why a request got an answer of the gateway instead of the upstream's.
enum Refused {
    Method,
    Coding,
    TooLong { limit: u64 },
    BodyPaused,
    BodySlow { bytes_per_s: u64 },
    BodyBroken,
    NoRoute,
    Unreachable,
    BrokeOff,
    Slow,
    Unframed,
    OldVersion,
}

impl Refused {
    fn from_client(error: &ClientError) -> Self {
        match fault_behind(error) {
            Some(BodyFault::TooLong { limit }) => Refused::TooLong { limit: *limit },
            Some(BodyFault::Pace(PaceFault::Paused { .. })) => Refused::BodyPaused,
            Some(BodyFault::Pace(PaceFault::Slow { bytes_per_s, .. })) => {
                Refused::BodySlow { bytes_per_s: *bytes_per_s }
            }
            Some(BodyFault::Broken(_)) => Refused::BodyBroken,
            None if error.is_connect() => Refused::Unreachable,
            None => Refused::BrokeOff,
        }
    }

    fn into_response(self) -> Response<AnswerBody> {
        let (too_long, too_slow);
        let (status, code, message) = match self {
            Refused::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                "this method is not proxied, or not for this path",
            ),
            Refused::Coding => (
                StatusCode::NOT_IMPLEMENTED,
                "transfer_coding",
                "request body is not readable: wanted no transfer coding but chunked",
            ),
            Refused::TooLong { limit } => {
                too_long = format!("request body is too long: wanted at most {limit} bytes");
                (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", too_long.as_str())
            }
            Refused::BodyPaused => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "request body paused too long")
            }
            Refused::BodySlow { bytes_per_s } => {
                too_slow =
                    format!("request body came too slowly: wanted at least {bytes_per_s} bytes/s");
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", too_slow.as_str())
            }
            Refused::BodyBroken => {
                (StatusCode::BAD_REQUEST, "request_broken", "request body broke off")
            }
            Refused::NoRoute => {
                (StatusCode::NOT_FOUND, "no_route", "no upstream is configured for this path")
            }
            Refused::Unreachable => {
                (StatusCode::BAD_GATEWAY, "upstream_unreachable", "upstream cannot be reached")
            }
            Refused::BrokeOff => (
                StatusCode::BAD_GATEWAY,
                "upstream_broke_off",
                "upstream closed the connection before it answered",
            ),
            Refused::Slow => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream_timeout",
                "upstream did not start its answer in time",
            ),
            Refused::Unframed => (
                StatusCode::BAD_GATEWAY,
                "upstream_unframed",
                "upstream framed its answer so that its end could not be told from its death",
            ),
            // HTTP/1.0 has no chunks: a stream that broke would look complete.
            Refused::OldVersion => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_1_1_needed",
                "a streamed answer needs HTTP/1.1",
            ),
        };
        tracing::info!(code, "request not proxied");
        answer::error(status, code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_prefix_covers_whole_segments() {
        for (prefix, path, wanted) in [
            ("/", "/v1/models", true),
            ("/v1", "/v1", true),
            ("/v1", "/v1/models", true),
            ("/v1/", "/v1/models", true),
            ("/v1", "/v10", false),
            ("/v1", "/", false),
        ] {
            assert_eq!(covers(prefix, path), wanted, "{prefix} {path}");
        }
    }
}
