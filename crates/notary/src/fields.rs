//! Fields of a request: which may be sent, and which hold secrets.

/// Fields that speak of one connection, frame a message or name the host. The notary writes those
/// that are needed itself; a client that could write them would make two messages out of one.
const NOT_THE_CLIENTS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields whose values are secrets, and patterns of names that say so: `*` stands for any letters.
pub const SECRET_FIELDS: &[&str] = &[
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
    "x-amz-security-token",
    "*-api-key",
    "*-auth*",
    "*-credential*",
    "*-key",
    "*-password*",
    "*-secret*",
    "*-session*",
    "*-signature*",
    "*-token*",
    "api-key",
    "apikey",
];

/// Whether a client may send a field of this name (lower case).
pub(crate) fn may_be_sent(name: &str) -> bool {
    !NOT_THE_CLIENTS.contains(&name)
}

/// Whether a field of this name (lower case) holds a secret, by [`SECRET_FIELDS`] or by one of
/// `more`.
pub fn is_secret(name: &str, more: &[String]) -> bool {
    let more = more.iter().map(String::as_str);
    SECRET_FIELDS.iter().copied().chain(more).any(|pattern| matches(pattern, name))
}

/// Whether `name` is what `pattern` describes. A pattern has few stars, a name is short.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_carry_secrets_are_known_by_name_and_by_pattern() {
        for secret in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "x-api-key",
            "api-key",
            "x-auth-token",
            "x-goog-api-key",
            "openai-secret",
            "x-csrf-token",
            "x-session-id",
        ] {
            assert!(is_secret(secret, &[]), "{secret}");
        }
        for open in ["accept", "content-type", "user-agent", "x-request-id", "keyboard"] {
            assert!(!is_secret(open, &[]), "{open}");
        }
        assert!(is_secret("x-tenant-7", &["x-tenant-*".into()]));
    }

    #[test]
    fn a_star_stands_for_any_letters() {
        assert!(matches("*", "") && matches("a*c", "abc") && matches("a*b*", "a-b-c"));
        assert!(!matches("a*c", "ab") && !matches("", "a"));
    }
}
