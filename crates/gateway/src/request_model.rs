//! The model that a request names, in its body or its path.

use bytes::Bytes;
use confide_http::decode_percent;
use http::{HeaderMap, header};
use tokio::task::JoinError;

use crate::{
    choice_error::ChoiceError, model_field::parse_model_field, openable_receipt::OpenableRequest,
    request_facts::DescribedBody,
};

/// The path of OpenAI's list of models, below which each model has a path.
pub(crate) const MODELS_PATH: &str = "/v1/models";
/// The largest number of bytes of a body that is parsed at once; parsing it takes less than a
/// millisecond. A longer one is parsed on a thread for blocking work, so that it delays no stream.
const PARSE_AT_ONCE_BYTES: usize = 256 * 1024;

/// The model that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestModel {
    /// The request has no JSON body, or its body was not read.
    Absent,
    /// The `model` of the JSON body.
    Named(String),
}

impl RequestModel {
    /// The name of the model, if the request names one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Absent => None,
            Self::Named(name) => Some(name),
        }
    }
}

/// Checks that a server could not read the body in another coding or character set than the
/// gateway.
pub(crate) fn check_json_headers(headers: &HeaderMap) -> Result<(), ChoiceError> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.into_iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ChoiceError::ContentCoding);
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let Ok(first) = first.map_or(Ok(""), |value| value.to_str()) else {
        return Err(ChoiceError::ContentType);
    };
    let is_utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    let kind = first.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    // A form could be read as one with another model.
    let is_readable = kind.is_empty()
        || kind == "application/json"
        || kind.ends_with("+json")
        || kind.starts_with("multipart/");
    match second.is_none() && is_readable && first.split(';').skip(1).all(is_utf8) {
        true => Ok(()),
        false => Err(ChoiceError::ContentType),
    }
}

/// Finds the model that a request names: in its body, which was read whole, or in the path of
/// OpenAI's description of a model. Other requests without a body, and forms with files, name none;
/// any other body has to.
pub(crate) async fn find_model(
    path: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<RequestModel, ChoiceError> {
    if body.is_empty() {
        let name = path.strip_prefix(MODELS_PATH).and_then(|rest| rest.strip_prefix('/'));
        let name = name.filter(|name| !name.is_empty()).and_then(decode_percent);
        return Ok(name.map_or(RequestModel::Absent, RequestModel::Named));
    }
    if is_multipart(headers) {
        return Ok(RequestModel::Absent);
    }
    Ok(RequestModel::Named(parse_body(body, parse_model_field).await?))
}

/// Describes a request's body for its receipt.
pub(crate) async fn describe_body(
    headers: &HeaderMap,
    body: &Bytes,
    openable: Option<OpenableRequest>,
) -> DescribedBody {
    let is_json = check_json_headers(headers).is_ok() && !is_multipart(headers);
    let describe = move |body: &[u8]| DescribedBody::of_body(body, is_json, openable.as_ref());
    parse_body(body, describe).await
}

/// Parses a body, on a thread for blocking work if it is long.
pub(crate) async fn parse_body<T: Send + 'static>(
    body: &Bytes,
    parse: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> T {
    if body.len() <= PARSE_AT_ONCE_BYTES {
        return parse(body);
    }
    let body = body.clone();
    run_blocking(move || parse(&body)).await
}

/// Runs `work` on a thread for blocking work.
///
/// # Panics
/// If `work` does.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(outcome) => outcome,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime ends, and with it the task of the request.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn is_multipart(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    let kind = value.and_then(|value| value.get(.."multipart/".len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "a fault in the parser")]
    async fn a_panic_on_the_other_thread_is_one_of_the_request() {
        run_blocking(|| panic!("a fault in the parser")).await
    }

    #[test]
    fn a_body_that_a_server_might_decode_otherwise_is_refused() {
        for (name, values, is_accepted) in [
            ("content-type", &["application/json"][..], true),
            ("content-type", &["application/json; charset=UTF-8"], true),
            ("content-type", &["application/json;charset=\"utf-8\""], true),
            ("content-type", &["multipart/form-data; boundary=x"], true),
            ("content-type", &["application/json; Charset = utf-7"], false),
            ("content-type", &["application/json; a=b; charset=utf-16"], false),
            ("content-type", &["multipart/form-data; boundary=x", "application/json"], false),
            ("content-type", &["application/x-www-form-urlencoded"], false),
            ("content-type", &["application/vnd.api+json"], true),
            ("content-type", &["text/plain"], false),
            ("content-encoding", &["identity"], true),
            ("content-encoding", &["gzip"], false),
            ("content-encoding", &["identity", "br"], false),
            ("content-encoding", &["identity, gzip"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name, value.parse().unwrap());
            }
            assert_eq!(check_json_headers(&headers).is_ok(), is_accepted, "{name}: {values:?}");
        }
        assert!(check_json_headers(&HeaderMap::new()).is_ok());
    }
}
