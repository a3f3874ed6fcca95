//! One request and its answer, as httpx gives and takes them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use confide_client::{RequestDeadlines, streamed_body};
use http::{HeaderName, HeaderValue, Method, Request, header};
use pyo3::prelude::*;

use crate::{
    answer::Answer,
    attested_end::AttestedEnd,
    failure::{Failure, TransportFault},
    request_body::WatchedBody,
};

/// A request with its deadlines in seconds, read from an object of `confide.transport`.
#[derive(FromPyObject)]
pub(crate) struct WireRequest {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    target: Vec<u8>,
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    connect_s: Option<f64>,
    pool_s: Option<f64>,
    read_s: Option<f64>,
    write_s: Option<f64>,
}

/// The fields that belong to a connection, and the length, which the body knows.
const CONNECTION_FIELDS: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Sends a request to the attested end, and returns the answer with its body still to be read.
pub(crate) async fn exchange(
    end: Arc<AttestedEnd>,
    request: WireRequest,
) -> Result<Answer, Failure> {
    let read = to_duration(request.read_s);
    let write = to_duration(request.write_s);
    let deadlines = RequestDeadlines {
        queue: to_duration(request.pool_s),
        connect: to_duration(request.connect_s),
    };
    let (request, progress) = build_request(request)?;
    let sent = tokio::select! {
        sent = end.http().request_within(request, deadlines) => sent,
        failure = progress.wait_for_stall(write, read) => return Err(failure),
    };
    let answer = sent.map_err(|error| Failure::of_client(end.url(), &error))?;
    let Some(appraisal) = answer.appraisal else {
        return Err(Failure::transport(TransportFault::Connect, "the connection was not attested"));
    };
    Ok(Answer::new(answer.response, end.describe(&appraisal), read))
}

fn build_request(
    request: WireRequest,
) -> Result<(Request<confide_client::RequestBody>, crate::request_body::SendProgress), Failure> {
    let WireRequest { method, target, headers, body, .. } = request;
    let method = Method::from_bytes(method.as_bytes()).map_err(Failure::input)?;
    let (body, progress) = WatchedBody::new(Bytes::from(body));
    let mut built = Request::new(streamed_body(body));
    *built.method_mut() = method;
    *built.uri_mut() = target.as_slice().try_into().map_err(Failure::input)?;
    for (name, value) in headers {
        let name = HeaderName::from_bytes(&name).map_err(Failure::input)?;
        if !CONNECTION_FIELDS.contains(&name) {
            let value = HeaderValue::from_bytes(&value).map_err(Failure::input)?;
            built.headers_mut().append(name, value);
        }
    }
    Ok((built, progress))
}

/// A deadline in seconds; those that are no duration are as short as possible.
fn to_duration(seconds: Option<f64>) -> Option<Duration> {
    seconds.map(|seconds| match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => duration,
        Err(_) if seconds > 0.0 => Duration::MAX / 2,
        Err(_) => Duration::ZERO,
    })
}
