//! A salt for the prefix cache of a model server, one for each tenant.
//!
//! A server that keeps the work on a prompt's beginning answers sooner when another prompt begins in
//! the same way, which tells whoever measures it what others have asked. vLLM mixes the text of the
//! request's member `cache_salt` into the hash of the first block, so that only prompts with the same
//! salt share work. Not all of its paths read the member: requests to those are refused.

use std::{fmt, sync::OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use confide_http::Peer;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderValue, Method, header, request};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{
    api_key::find_credential,
    choice_error::ChoiceError,
    fields_of_bytes::remove_fields_of_bytes,
    request_model::{check_json_headers, parse_body},
};

/// The name of the member.
const MEMBER: &str = "cache_salt";
/// The paths on which vLLM is known to honour the member (its pull request 48566). On `/v1/messages`
/// (pull request 49498) and `/v1/embeddings` only its newest versions do, and others ignore it.
const SALTED_PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/completions", "/v1/responses"];
/// Paths to which a POST brings no prompt into a cache.
const PROMPTLESS_PATHS: [&str; 4] =
    ["/detokenize", "/tokenize", "/v1/files", "/v1/messages/count_tokens"];
/// Separates the salts from other uses of the secret.
const DOMAIN: &[u8] = b"confide cache salt 1";

/// The secret of this process, from which salts are derived. It ends with the process, and the use of
/// what a server has cached ends with it.
static SECRET: OnceLock<Zeroizing<[u8; 32]>> = OnceLock::new();

/// The salt of one tenant: 256 bits in base64. A client that knows it could share that tenant's work.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CacheSalt(String);

/// A body cannot be salted: it is not one JSON object in UTF-8 without a byte order mark, or has more
/// than 4,096 members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsaltable;

impl fmt::Debug for CacheSalt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheSalt(..)")
    }
}

/// Whether a request gets a salt where caches are salted. `path` is normalised.
pub(crate) fn is_salted(method: &Method, path: &str) -> bool {
    *method == Method::POST && SALTED_PATHS.contains(&path)
}

/// Whether a request brings no prompt into a cache.
fn is_promptless(method: &Method, path: &str) -> bool {
    let is_cancellation = || {
        let id = path.strip_prefix("/v1/responses/").and_then(|rest| rest.strip_suffix("/cancel"));
        id.is_some_and(|id| !id.is_empty() && !id.contains('/'))
    };
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE => true,
        Method::POST => PROMPTLESS_PATHS.contains(&path) || is_cancellation(),
        _ => false,
    }
}

impl CacheSalt {
    /// Takes the salt that was noted for a request. `salts_caches` says whether requests to its
    /// servers get one.
    ///
    /// # Errors
    /// [`ChoiceError::UnsaltedPath`] for a request that could bring a prompt into a cache without one.
    pub(crate) fn take_from(
        head: &mut request::Parts,
        salts_caches: bool,
        path: &str,
    ) -> Result<Option<Self>, ChoiceError> {
        match head.extensions.remove::<Self>() {
            None if salts_caches && !is_promptless(&head.method, path) => {
                Err(ChoiceError::UnsaltedPath)
            }
            salt => Ok(salt),
        }
    }

    /// The salt of the client of a request: of its API key if keys are checked, otherwise of its
    /// address. An address is shared by whoever is behind it.
    pub(crate) fn of_client(headers: &HeaderMap, peer: Peer, checks_keys: bool) -> Self {
        match find_credential(headers).filter(|_| checks_keys) {
            Some(key) => Self::derive(b"key", &key.0),
            None => Self::derive(b"address", peer.to_string().as_bytes()),
        }
    }

    fn derive(kind: &[u8], tenant: &[u8]) -> Self {
        let secret = SECRET.get_or_init(draw_secret);
        let mac = Hmac::<Sha256>::new_from_slice(&secret[..]);
        let mut mac = mac.expect("HMAC takes keys of any length");
        for part in [DOMAIN, kind, tenant] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Self(STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// Writes the salt into a body, in place of the client's own, and its length into the head.
    ///
    /// # Errors
    /// [`ChoiceError`] for a body that is not one JSON object, or that a server could
    /// read in another coding or character set.
    pub(crate) async fn write_to(
        self,
        headers: &mut HeaderMap,
        body: &Bytes,
    ) -> Result<Bytes, ChoiceError> {
        check_json_headers(headers)?;
        let salted = parse_body(body, move |body| insert_cache_salt(body, &self.0)).await;
        let salted = salted.map_err(|Unsaltable| ChoiceError::Unsaltable)?;
        remove_fields_of_bytes(headers);
        if headers.contains_key(header::CONTENT_LENGTH) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(salted.len()));
        }
        Ok(salted.into())
    }
}

/// # Panics
/// If the operating system has no random bytes: without them every salt could be guessed.
fn draw_secret() -> Zeroizing<[u8; 32]> {
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut secret[..]).expect("the operating system has random bytes");
    secret
}

/// Writes `salt` as the member `cache_salt` of a JSON object, in place of all members that some reader
/// could take for it. All other bytes stay as they are if it has no such member; otherwise its other
/// members are written again, with their values as they are.
///
/// # Errors
/// [`Unsaltable`] if the body is not one JSON object in UTF-8 without a byte order mark, or has more
/// than 4,096 members.
pub fn insert_cache_salt(body: &[u8], salt: &str) -> Result<Vec<u8>, Unsaltable> {
    let text = std::str::from_utf8(body).map_err(|_| Unsaltable)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let members = json.deserialize_map(MemberVisitor).map_err(|_| Unsaltable)?;
    json.end().map_err(|_| Unsaltable)?;
    let mut salted = Vec::with_capacity(body.len() + MEMBER.len() + salt.len() + 8);
    let write_text = |salted: &mut Vec<u8>, text: &str| {
        // Into memory, so that it cannot fail.
        let _ = serde_json::to_writer(salted, text);
    };
    salted.push(b'{');
    write_text(&mut salted, MEMBER);
    salted.push(b':');
    write_text(&mut salted, salt);
    if !members.is_empty() && !members.iter().any(|(name, _)| is_salt(name)) {
        salted.push(b',');
        let start = text.find('{').ok_or(Unsaltable)?;
        salted.extend_from_slice(&body[start + 1..]);
        return Ok(salted);
    }
    for (name, value) in members.iter().filter(|(name, _)| !is_salt(name)) {
        salted.push(b',');
        write_text(&mut salted, name);
        salted.push(b':');
        salted.extend_from_slice(value.get().as_bytes());
    }
    salted.push(b'}');
    Ok(salted)
}

/// Whether some reader could take a name for that of the member. Go's reader compares names without
/// regard to case, by Unicode's simple folding: to it, the long s (`ſ`) is an `s`.
fn is_salt(name: &str) -> bool {
    name.chars().flat_map(char::to_uppercase).eq(MEMBER.chars().flat_map(char::to_uppercase))
}

/// Reads the members of an object, with their values as they are written.
struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            members.push(member);
        }
        Ok(members)
    }
}

/// The largest number of members of a body, of which OpenAI's API has some forty.
const MEMBERS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn salt(body: &str) -> Result<String, Unsaltable> {
        insert_cache_salt(body.as_bytes(), "S").map(|salted| String::from_utf8(salted).unwrap())
    }

    #[test]
    fn the_rest_of_a_body_stays_as_it_is() {
        for (body, wanted) in [
            ("{\"model\":\"m\"}", "{\"cache_salt\":\"S\",\"model\":\"m\"}"),
            (
                " {\n \"a\" : 1.50e0, \"a\":2 } ",
                "{\"cache_salt\":\"S\",\n \"a\" : 1.50e0, \"a\":2 } ",
            ),
            (
                "{\"a\":{\"cache_salt\":\"x\"}}",
                "{\"cache_salt\":\"S\",\"a\":{\"cache_salt\":\"x\"}}",
            ),
            ("{}", "{\"cache_salt\":\"S\"}"),
            ("{ }", "{\"cache_salt\":\"S\"}"),
        ] {
            assert_eq!(salt(body).as_deref(), Ok(wanted), "{body}");
        }
    }

    #[test]
    fn a_clients_own_salt_is_replaced_however_it_is_written() {
        for own in [
            "\"cache_salt\":\"mine\"",
            "\"cache_s\\u0061lt\":\"mine\"",
            "\"Cache_Salt\":\"mine\"",
            "\"cache_\u{17f}alt\":\"mine\"",
            "\"CACHE_\\u017fALT\":\"mine\"",
            "\"cache_salt\":null,\"cache_salt\":[\"mine\"]",
        ] {
            let body = format!("{{\"model\":\"\\u006d\",{own}, \"n\": 1.0 }}");
            let wanted = "{\"cache_salt\":\"S\",\"model\":\"\\u006d\",\"n\":1.0}";
            assert_eq!(salt(&body).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[]", "\"x\"", "{\"a\":1", "{\"a\":1}{}", "{\"a\":1} x", "{'a':1}"] {
            assert_eq!(salt(body), Err(Unsaltable), "{body}");
        }
        assert_eq!(insert_cache_salt(b"{\"a\":\"\xff\"}", "S"), Err(Unsaltable));
        // Some readers skip a byte order mark, and others do not (RFC 8259 section 8.1).
        assert_eq!(salt("\u{feff}{}"), Err(Unsaltable));
    }

    #[test]
    fn a_body_of_too_many_members_is_refused() {
        let body = |count: usize| {
            let members: Vec<_> = (0..count).map(|number| format!("\"{number}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(salt(&body(MEMBERS_MAX)).is_ok());
        assert_eq!(salt(&body(MEMBERS_MAX + 1)), Err(Unsaltable));
    }

    #[test]
    fn only_what_brings_no_prompt_into_a_cache_goes_without_a_salt() {
        for (method, path, wanted) in [
            (Method::POST, "/v1/chat/completions", (true, false)),
            (Method::POST, "/v1/responses", (true, false)),
            (Method::GET, "/v1/responses", (false, true)),
            (Method::POST, "/v1/responses/resp_1/cancel", (false, true)),
            (Method::POST, "/v1/responses//cancel", (false, false)),
            (Method::POST, "/v1/responses/a/b/cancel", (false, false)),
            (Method::POST, "/v1/messages", (false, false)),
            (Method::POST, "/v1/messages/count_tokens", (false, true)),
            (Method::POST, "/v1/embeddings", (false, false)),
            (Method::PUT, "/v1/files", (false, false)),
            (Method::DELETE, "/v1/files/1", (false, true)),
        ] {
            let got = (is_salted(&method, path), is_promptless(&method, path));
            assert_eq!(got, wanted, "{method} {path}");
        }
    }

    #[test]
    fn a_salt_is_not_shown() {
        let salt = CacheSalt::derive(b"key", b"a");
        assert!(!format!("{salt:?}").contains(&salt.0));
    }

    #[test]
    fn a_tenant_has_one_salt_and_no_other_has_it() {
        let peer = |text: &str| Peer::from(text.parse::<std::net::IpAddr>().unwrap());
        let (one, other) = (peer("192.0.2.1"), peer("192.0.2.2"));
        let mut keyed = HeaderMap::new();
        keyed.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        let none = HeaderMap::new();
        let salt = CacheSalt::of_client;
        assert_eq!(salt(&keyed, one, true), salt(&keyed, other, true));
        assert_ne!(salt(&keyed, one, true), salt(&none, one, true));
        assert_ne!(salt(&none, one, true), salt(&none, other, true));
        // A key that nobody checks could be anybody's.
        assert_eq!(salt(&keyed, one, false), salt(&none, one, false));
        assert_eq!(salt(&none, one, false).0.len(), 44);
    }
}
