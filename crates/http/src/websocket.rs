//! The handshakes of a WebSocket that passes a proxy: RFC 6455 with HTTP/1.1, and RFC 8441 in a
//! stream of HTTP/2.
//!
//! Each side of the proxy has a handshake of its own: the next hop always gets one of HTTP/1.1 with
//! a fresh key.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header, request,
    response,
};
use hyper::{ext::Protocol, upgrade::OnUpgrade};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

use crate::hop::{list_members, remove_hop_by_hop};

/// The only version of the protocol, for the field `Sec-WebSocket-Version`.
pub const WEBSOCKET_VERSION: HeaderValue = HeaderValue::from_static("13");
/// The number of bytes in a key.
const KEY_BYTES: usize = 16;
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");

/// The client's side of a handshake whose request was valid.
#[derive(Debug)]
pub struct ClientHandshake {
    /// hyper's stream of the client; `None` if the caller reads the connection itself.
    upgrade: Option<OnUpgrade>,
    /// The client's key; `None` in HTTP/2, which has no key.
    key: Option<HeaderValue>,
}

/// The key that the answer of the next hop has to confirm.
#[derive(Debug)]
pub struct HandshakeKey(String);

/// Whether a request asks for a WebSocket, in the form of its version of HTTP.
pub fn is_websocket_request(head: &request::Parts) -> bool {
    match head.version {
        Version::HTTP_2 => {
            let protocol = head.extensions.get::<Protocol>().map(Protocol::as_str);
            head.method == Method::CONNECT && protocol == Some("websocket")
        }
        _ => is_websocket_upgrade(&head.headers),
    }
}

impl ClientHandshake {
    /// Checks the client's handshake and turns `head` into that of an ordinary GET. `None` if a field
    /// is missing, repeated or wrong.
    pub fn take(head: &mut request::Parts) -> Option<Self> {
        let version = single_value(&head.headers, &header::SEC_WEBSOCKET_VERSION);
        if version != Some(&WEBSOCKET_VERSION) {
            return None;
        }
        let key = match head.version {
            Version::HTTP_2 => None,
            Version::HTTP_11 if head.method == Method::GET && upgrades(&head.headers) => {
                let key = single_value(&head.headers, &header::SEC_WEBSOCKET_KEY)?;
                let bytes = STANDARD.decode(key).ok()?;
                (bytes.len() == KEY_BYTES).then_some(())?;
                Some(key.clone())
            }
            _ => return None,
        };
        let upgrade = head.extensions.remove::<OnUpgrade>();
        if upgrade.is_none() && head.version == Version::HTTP_2 {
            return None;
        }
        head.extensions.remove::<Protocol>();
        head.method = Method::GET;
        Some(Self { upgrade, key })
    }

    /// Turns the head with which the next hop has accepted into that of the answer to the client.
    /// Returns hyper's stream of the client, if it has one, which is open once that answer was sent.
    pub fn accept(self, head: &mut response::Parts) -> Option<OnUpgrade> {
        let headers = &mut head.headers;
        remove_hop_by_hop(headers);
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::SEC_WEBSOCKET_ACCEPT);
        head.status = StatusCode::OK;
        if let Some(key) = &self.key
            && let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
        {
            head.status = StatusCode::SWITCHING_PROTOCOLS;
            headers.insert(header::CONNECTION, UPGRADE);
            headers.insert(header::UPGRADE, WEBSOCKET);
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        self.upgrade
    }
}

impl HandshakeKey {
    /// Makes a fresh key and adds the handshake to the fields of a request to the next hop.
    pub fn offer(headers: &mut HeaderMap) -> Self {
        let key = generate_key();
        // `Connection` names it no longer, and an accepted WebSocket has no trailers.
        headers.remove(header::TE);
        headers.insert(header::CONNECTION, UPGRADE);
        headers.insert(header::UPGRADE, WEBSOCKET);
        headers.insert(header::SEC_WEBSOCKET_VERSION, WEBSOCKET_VERSION);
        // A key is base64, which is valid in a field.
        if let Ok(value) = HeaderValue::from_str(&key) {
            headers.insert(header::SEC_WEBSOCKET_KEY, value);
        }
        Self(key)
    }

    /// Whether an answer accepts the handshake with this key.
    pub fn is_accepted<B>(&self, answer: &Response<B>) -> bool {
        let accept = single_value(answer.headers(), &header::SEC_WEBSOCKET_ACCEPT);
        answer.status() == StatusCode::SWITCHING_PROTOCOLS
            && is_websocket_upgrade(answer.headers())
            && upgrades(answer.headers())
            && accept.is_some_and(|accept| *accept == derive_accept_key(self.0.as_bytes()).as_str())
    }
}

/// Whether a message names an upgrade to a WebSocket (RFC 6455 section 4.2.1).
///
/// Other upgrades may be ignored (RFC 9110 section 7.8), but a WebSocket client would misread a
/// plain answer.
fn is_websocket_upgrade(headers: &HeaderMap) -> bool {
    list_members(headers, &header::UPGRADE)
        .any(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// Whether `Connection` names `Upgrade`, so that the latter is meant for this hop.
fn upgrades(headers: &HeaderMap) -> bool {
    list_members(headers, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_to_websocket_is_told_from_others() {
        for (value, wanted) in [("websocket", true), ("h2c, WebSocket", true), ("h2c", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::UPGRADE, value.parse().unwrap());
            assert_eq!(is_websocket_upgrade(&headers), wanted, "{value}");
        }
        assert!(!is_websocket_upgrade(&HeaderMap::new()));
    }
}
