//! The endpoint of requests, and the bytes of each request.

use std::fmt;

use confide_http::{HttpUrl, Scheme, uri_host};
use serde_json::{Map, Value, json};

use crate::plan::Plan;

/// An OpenAI-compatible endpoint, and the fields that every request has.
#[derive(Clone)]
pub struct Target {
    /// Whether requests go over TLS, because the address says `https`.
    pub secure: bool,
    /// The host, without brackets around an IPv6 address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path of the route.
    pub path: String,
    /// The name of the model.
    pub model: String,
    /// The key of the API, without `Bearer`.
    pub key: Option<String>,
    /// Further fields of each request, instead of ours where the names are the same; null leaves
    /// one out.
    pub more: Map<String, Value>,
}

/// The error of an address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address: wanted http[s]://HOST[:PORT][/PATH], got {got}")]
pub struct TargetError {
    /// The address that was given.
    pub got: String,
}

impl Target {
    /// Reads `http[s]://HOST[:PORT][/PATH]`; the path is that of the API, `/v1` where there is none.
    ///
    /// # Errors
    /// [`TargetError`] if the address has another form.
    pub fn parse(text: &str, model: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError { got: text.chars().take(200).collect() };
        let url = HttpUrl::parse(text).map_err(|_| wrong())?;
        if url.query().is_some() {
            return Err(wrong());
        }
        let base = match url.path().trim_end_matches('/') {
            "" => "/v1",
            base => base,
        };
        Ok(Self {
            secure: url.scheme() == Scheme::Https,
            host: url.host().to_owned(),
            port: url.port(),
            path: format!("{base}/chat/completions"),
            model: model.to_owned(),
            key: None,
            more: Map::new(),
        })
    }

    /// `HOST:PORT`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        format!("{}:{}", uri_host(&self.host), self.port)
    }

    /// The address without credentials.
    pub fn to_display(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// The bytes of one request of the plan.
    pub(crate) fn request_bytes(&self, plan: &Plan, index: usize, keep: bool) -> Vec<u8> {
        let tokens = plan.requests.get(index).map_or(1, |planned| planned.output_tokens);
        let mut body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": plan.prompt(index) }],
            "max_tokens": tokens,
            "temperature": 0,
            "seed": 0,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if let Value::Object(fields) = &mut body {
            for (name, value) in &self.more {
                match value {
                    Value::Null => fields.remove(name),
                    value => fields.insert(name.clone(), value.clone()),
                };
            }
        }
        let body = body.to_string();
        let key = self
            .key
            .as_ref()
            .map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"));
        let close = if keep { "" } else { "connection: close\r\n" };
        let mut bytes = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             accept: text/event-stream\r\n{key}{close}content-length: {}\r\n\r\n",
            self.path,
            self.authority(),
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        bytes
    }
}

/// Never shows the key.
impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_ref().map(|_| "…");
        out.debug_struct("Target")
            .field("url", &self.to_display())
            .field("model", &self.model)
            .field("key", &key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrivals, TokenLengths, Workload};

    #[test]
    fn an_address_has_host_port_and_the_path_of_the_api() {
        for (url, shown) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/chat/completions"),
            ("https://a.example/", "https://a.example:443/v1/chat/completions"),
            ("https://a.example/openai/v1/", "https://a.example:443/openai/v1/chat/completions"),
            ("http://[::1]:9", "http://[::1]:9/v1/chat/completions"),
        ] {
            assert_eq!(Target::parse(url, "m").unwrap().to_display(), shown);
        }
        for url in [
            "a.example",
            "ftp://a.example",
            "http://",
            "http://a:0",
            "http://a:x",
            "http://me:secret@a.example",
            "http://a.example/?x",
            "http://a b",
            "http://[::1",
            "http://a:+80",
            "http://a:",
            "http://127.1",
        ] {
            assert_eq!(Target::parse(url, "m").unwrap_err().got, url);
        }
    }

    #[test]
    fn a_request_is_whole_and_its_key_is_never_shown() {
        let plan = Plan::new(&Workload {
            arrivals: Arrivals::Constant { rate_per_s: 1.0 },
            requests: 1,
            duration_s: None,
            prompt_tokens: TokenLengths::of_tokens(3),
            output_tokens: TokenLengths::of_tokens(5),
            seed: 1,
        })
        .unwrap();
        let mut target = Target::parse("http://a:1", "m").unwrap();
        target.key = Some("sk-secret".into());
        target.more.insert("ignore_eos".into(), true.into());
        target.more.insert("seed".into(), Value::Null);
        let text = String::from_utf8(target.request_bytes(&plan, 0, true)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("authorization: Bearer sk-secret"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["max_tokens"], &body["ignore_eos"]), (&json!(5), &json!(true)));
        assert!(body.get("seed").is_none());
        assert!(!format!("{target:?}").contains("secret"));
    }
}
