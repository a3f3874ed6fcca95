//! Normalises the path of a request to the one spelling that is matched and sent. A filter that
//! reads a path differently from the server behind it does not protect: `/v1/../metrics` and
//! `/v1/%2e%2e/metrics` are `/metrics` to most servers. A path is therefore normalised once (RFC
//! 3986 section 6.2.2), and an ambiguous path is refused.

use std::borrow::Cow;

/// The reason why a path is ambiguous or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathFault {
    #[error("request target has no path that starts with `/`")]
    NoPath,
    #[error("path has a `%` without two hexadecimal digits")]
    InvalidEscape,
    #[error("path has an encoded separator, percent sign or control character")]
    EncodedSeparator,
    #[error("path has escapes that are not UTF-8")]
    NotUtf8,
    #[error("path has a character that must be percent-encoded")]
    UnencodedCharacter,
    #[error("path leads above its root")]
    AboveRoot,
    #[error("path has a dot segment with parameters")]
    DotParameters,
}

/// Decodes unreserved characters, writes other escapes in upper case, and removes dot segments and
/// empty segments. A path that is already in this form is not copied.
pub(crate) fn normalise(path: &str) -> Result<Cow<'_, str>, PathFault> {
    if !path.starts_with('/') {
        return Err(PathFault::NoPath);
    }
    if path.bytes().any(|byte| byte == b'\\' || !(0x21..0x7f).contains(&byte)) {
        return Err(PathFault::UnencodedCharacter);
    }
    let is_plain = !path.contains('%') && !path.contains("//") && !path.contains("/.");
    if is_plain {
        return Ok(Cow::Borrowed(path));
    }
    remove_dot_segments(&decode_unreserved(path)?).map(Cow::Owned)
}

/// Decodes unreserved characters (RFC 3986 section 6.2.2.2). An escaped slash, backslash or percent
/// sign is refused, because some servers read it as a separator. Invalid UTF-8 is refused, because
/// a lenient decoder might take it for one of them.
fn decode_unreserved(path: &str) -> Result<String, PathFault> {
    let mut decoded = String::with_capacity(path.len());
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((plain, escaped)) = rest.split_once('%') {
        decoded.push_str(plain);
        bytes.extend_from_slice(plain.as_bytes());
        let digits = escaped.get(..2).ok_or(PathFault::InvalidEscape)?;
        // `from_str_radix` would also accept a sign.
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(PathFault::InvalidEscape);
        }
        let byte = u8::from_str_radix(digits, 16).map_err(|_| PathFault::InvalidEscape)?;
        bytes.push(byte);
        match byte {
            b'/' | b'\\' | b'%' | 0..0x20 | 0x7f => return Err(PathFault::EncodedSeparator),
            b'-' | b'.' | b'_' | b'~' => decoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => decoded.push(char::from(byte)),
            _ => {
                decoded.push('%');
                decoded.push_str(&digits.to_ascii_uppercase());
            }
        }
        rest = &escaped[2..];
    }
    decoded.push_str(rest);
    std::str::from_utf8(&bytes).map_err(|_| PathFault::NotUtf8)?;
    Ok(decoded)
}

/// Removes dot segments (RFC 3986 section 5.2.4), but refuses a path that leads above the root.
fn remove_dot_segments(path: &str) -> Result<String, PathFault> {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for segment in path.split('/').skip(1) {
        ends_open = true;
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop().ok_or(PathFault::AboveRoot)?),
            // Some servers strip what follows a semicolon and see `..` (RFC 3986 section 3.3).
            _ if is_dots_with_parameters(segment) => return Err(PathFault::DotParameters),
            _ => {
                kept.push(segment);
                ends_open = false;
            }
        }
    }
    let mut path = String::with_capacity(path.len());
    for segment in &kept {
        path.push('/');
        path.push_str(segment);
    }
    if ends_open || path.is_empty() {
        path.push('/');
    }
    Ok(path)
}

fn is_dots_with_parameters(segment: &str) -> bool {
    let after = segment.strip_prefix("..").or_else(|| segment.strip_prefix('.'));
    after.is_some_and(|after| after.starts_with(';') || after.starts_with("%3B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (path, wanted) in [
            ("/", "/"),
            ("/v1/models", "/v1/models"),
            ("//metrics", "/metrics"),
            ("/v1//chat///completions", "/v1/chat/completions"),
            ("/v1/../metrics", "/metrics"),
            ("/v1/%2e%2E/metrics", "/metrics"),
            ("/v1/./models/", "/v1/models/"),
            ("/v1/models/.", "/v1/models/"),
            ("/v1/x/..", "/v1/"),
            ("/%76%31/models", "/v1/models"),
            ("/v1/models/a%20b%c3%a9", "/v1/models/a%20b%C3%A9"),
            ("/v1/models/a:b@c", "/v1/models/a:b@c"),
            ("/...", "/..."),
            ("/.well-known/confide", "/.well-known/confide"),
        ] {
            assert_eq!(normalise(path).as_deref(), Ok(wanted), "{path}");
            let again = normalise(wanted).unwrap();
            assert_eq!(again, wanted, "a second time changes it");
        }
    }

    #[test]
    fn a_path_that_two_servers_could_read_in_two_ways_is_refused() {
        for (path, wanted) in [
            ("*", PathFault::NoPath),
            ("", PathFault::NoPath),
            ("v1/models", PathFault::NoPath),
            ("/v1/models/..%2f..%2fmetrics", PathFault::EncodedSeparator),
            ("/v1/models/..%5Cmetrics", PathFault::EncodedSeparator),
            ("/v1/models/%252e%252e", PathFault::EncodedSeparator),
            ("/v1/models/%00", PathFault::EncodedSeparator),
            ("/v1/models/%0d%0a", PathFault::EncodedSeparator),
            ("/v1/models/%7f", PathFault::EncodedSeparator),
            // Overlong forms of `.` and `/`, and a byte of Latin-1.
            ("/v1/models/%c0%ae%c0%ae", PathFault::NotUtf8),
            ("/v1/models/a%c0%afb", PathFault::NotUtf8),
            ("/v1/models/caf%e9", PathFault::NotUtf8),
            ("/v1/models/%", PathFault::InvalidEscape),
            ("/v1/models/%g0", PathFault::InvalidEscape),
            ("/v1/models/%+1", PathFault::InvalidEscape),
            ("/v1/models/%é", PathFault::UnencodedCharacter),
            ("/v1\\..\\metrics", PathFault::UnencodedCharacter),
            ("/..", PathFault::AboveRoot),
            ("/v1/../../metrics", PathFault::AboveRoot),
            ("/v1/..;/metrics", PathFault::DotParameters),
            ("/v1/..%3b/metrics", PathFault::DotParameters),
            ("/v1/.;x/metrics", PathFault::DotParameters),
        ] {
            assert_eq!(normalise(path), Err(wanted), "{path}");
        }
    }
}
