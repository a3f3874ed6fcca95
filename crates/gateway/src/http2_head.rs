//! The head of an HTTP/2 request in the form of HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header, request};
use http_body::Body;
use http_body_util::BodyExt;

use crate::refusal::RequestRefusal;

/// Gives a request of HTTP/2 the form of HTTP/1.1: one `Host`, and one `Cookie` (RFC 9113 sections
/// 8.3.1 and 8.2.3).
///
/// # Errors
/// [`RequestRefusal::Host`] unless `:authority` and `Host` name the same host,
/// [`RequestRefusal::TooManyFields`] for more than `fields_max` fields, which h2 does not count.
pub(crate) fn normalise_head(
    head: &mut request::Parts,
    fields_max: usize,
) -> Result<(), RequestRefusal> {
    join_cookies(head);
    // Different lengths do not get this far; equal ones are written once, as over HTTP/1.1.
    if let Some(length) = head.headers.remove(header::CONTENT_LENGTH) {
        head.headers.insert(header::CONTENT_LENGTH, length);
    }
    if let Some(authority) = head.uri.authority() {
        let authority = authority.as_str();
        let mut hosts = head.headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (None, _) => {
                let host = HeaderValue::from_str(authority).map_err(|_| RequestRefusal::Host)?;
                head.headers.insert(header::HOST, host);
            }
            (Some(host), None) if host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) => {}
            _ => return Err(RequestRefusal::Host),
        }
    }
    match head.headers.len() > fields_max {
        true => Err(RequestRefusal::TooManyFields),
        false => Ok(()),
    }
}

/// Waits for the end of a body that has to be empty: in HTTP/2 the end may be a frame of its own.
///
/// # Errors
/// [`RequestRefusal::BodyNotAllowed`] for a body with content, [`RequestRefusal::BodyPaused`] if it
/// does not end before the deadline, [`RequestRefusal::BodyBroken`] if it is cut.
pub(crate) async fn wait_for_empty_body<B>(
    body: &mut B,
    deadline: Duration,
) -> Result<(), RequestRefusal>
where
    B: Body<Data = Bytes> + Unpin,
{
    let ended = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| RequestRefusal::BodyBroken)?;
            if frame.data_ref().is_some_and(|data| !data.is_empty()) {
                return Err(RequestRefusal::BodyNotAllowed);
            }
        }
        Ok(())
    };
    tokio::time::timeout(deadline, ended).await.unwrap_or(Err(RequestRefusal::BodyPaused))
}

fn join_cookies(head: &mut request::Parts) {
    let crumbs: Vec<&[u8]> =
        head.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        head.headers.insert(header::COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(uri: &str, fields: &[(&'static str, &'static str)]) -> request::Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn authority_and_host_become_one_host() {
        for (uri, hosts, wanted) in [
            ("https://a.example/", &[][..], Some("a.example")),
            ("https://a.example:1/", &["A.example:1"], Some("A.example:1")),
            ("/", &["a.example"], Some("a.example")),
            ("https://a.example/", &["b.example"], None),
            ("https://a.example/", &["a.example:443"], None),
            ("https://a.example/", &["a.example", "a.example"], None),
        ] {
            let fields: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let mut head = head(uri, &fields);
            let outcome = normalise_head(&mut head, 9);
            assert_eq!(outcome.is_ok(), wanted.is_some(), "{uri} {hosts:?}");
            if let Some(wanted) = wanted {
                assert_eq!(head.headers[header::HOST], wanted);
            }
        }
    }

    #[test]
    fn crumbs_of_a_cookie_are_one_field_and_count_as_one() {
        let fields = [("cookie", "a=1"), ("cookie", "b=2; c=3"), ("host", "a.example"), ("x", "1")];
        let mut joined = head("/", &fields);
        assert!(normalise_head(&mut joined, 3).is_ok());
        let cookies: Vec<_> = joined.headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
        let refused = normalise_head(&mut head("/", &fields), 2);
        assert!(matches!(refused, Err(RequestRefusal::TooManyFields)));
    }
}
