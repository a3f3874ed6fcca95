//! Readers that accept only the plainest HTTP/1.1, so that no two programs can read it differently.

/// Fields that frame or direct a message; some servers read `_` in a name as `-` (RFC 3875 section
/// 4.1.18).
const DECISIVE_FIELDS: &[&str] = &["content-length", "host", "transfer-encoding"];

/// A message that was read from the wire, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireMessage {
    /// `METHOD TARGET` of a request; the status of an answer.
    pub(super) start: String,
    /// The body without its framing, one character for each byte.
    pub(super) body: String,
    /// The number of bytes of the whole message.
    pub(super) length: usize,
}

/// Reads a request; `None` if its end has not come yet.
///
/// # Errors
/// The reason why two programs could read these bytes differently.
pub(super) fn read_request(bytes: &[u8]) -> Result<Option<WireMessage>, String> {
    let Some((lines, head)) = read_head(bytes)? else { return Ok(None) };
    let (line, fields) = (&lines[0], &lines[1..]);
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = parts[..] else { return Err(format!("line {line:?}")) };
    if method.is_empty() || !method.chars().all(is_token_character) || !target.starts_with('/') {
        return Err(format!("line {line:?}"));
    }
    let fields = read_fields(fields)?;
    if fields.iter().filter(|(name, _)| name == "host").count() != 1 {
        return Err("not exactly one Host".into());
    }
    let start = format!("{method} {target}");
    Ok(read_body(&fields, &bytes[head..], Some(0))?.map(|(body, length)| WireMessage {
        start,
        body,
        length: head + length,
    }))
}

/// Reads an answer to a request with this method; `None` if its end has not come yet.
///
/// # Errors
/// The reason why two programs could read these bytes differently.
pub(super) fn read_answer(bytes: &[u8], method: &str) -> Result<Option<WireMessage>, String> {
    let Some((lines, head)) = read_head(bytes)? else { return Ok(None) };
    let line = &lines[0];
    let status = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3));
    let status = status.filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()));
    let start = status.ok_or_else(|| format!("line {line:?}"))?.to_owned();
    let fields = read_fields(&lines[1..])?;
    if method == "HEAD" || start.starts_with('1') || ["204", "304"].contains(&start.as_str()) {
        return Ok(Some(WireMessage { start, body: String::new(), length: head }));
    }
    Ok(read_body(&fields, &bytes[head..], None)?.map(|(body, length)| WireMessage {
        start,
        body,
        length: head + length,
    }))
}

/// The lines of a head, and its length with the empty line.
fn read_head(bytes: &[u8]) -> Result<Option<(Vec<String>, usize)>, String> {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head: String = text.chars().take(end).collect();
    let lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
    match lines.iter().find(|line| line.chars().any(|c| c != '\t' && c.is_ascii_control())) {
        Some(line) => Err(format!("control character in {line:?}")),
        None => Ok(Some((lines, end + 4))),
    }
}

fn read_fields(lines: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("field {line:?}"))?;
        let dashed = name.to_ascii_lowercase().replace('_', "-");
        let is_ambiguous = name.contains('_') && DECISIVE_FIELDS.contains(&dashed.as_str());
        if name.is_empty() || !name.chars().all(is_token_character) || is_ambiguous {
            return Err(format!("field {line:?}"));
        }
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(fields)
}

/// RFC 9110 section 5.6.2.
fn is_token_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// The body and its length on the wire. `unframed` is the length without framing fields.
fn read_body(
    fields: &[(String, String)],
    bytes: &[u8],
    unframed: Option<usize>,
) -> Result<Option<(String, usize)>, String> {
    let values = |wanted: &str| -> Vec<&str> {
        fields.iter().filter(|(name, _)| name == wanted).map(|(_, value)| &value[..]).collect()
    };
    let length = match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], ["chunked"]) => return read_chunks(bytes),
        ([], []) => unframed.ok_or("neither length nor chunks")?,
        ([digits], []) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| format!("length {digits:?}"))?
        }
        (lengths, codings) => return Err(format!("lengths {lengths:?} codings {codings:?}")),
    };
    let body = bytes.get(..length);
    Ok(body.map(|body| (body.iter().map(|byte| char::from(*byte)).collect(), length)))
}

fn read_chunks(bytes: &[u8]) -> Result<Option<(String, usize)>, String> {
    let (mut body, mut at) = (String::new(), 0);
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let line: String = rest[..end].iter().map(|byte| char::from(*byte)).collect();
        let is_size = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = usize::from_str_radix(&line, 16).ok().filter(|_| is_size);
        let size = size.ok_or_else(|| format!("chunk {line:?}"))?;
        if size == 0 {
            let trailers = read_trailers(&rest[end..])?;
            return Ok(trailers.map(|length| (body, at + end + length)));
        }
        let Some(chunk) = rest.get(end + 2..end + 4 + size) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err(format!("no line end after chunk {line:?}"));
        }
        body.extend(chunk[..size].iter().map(|byte| char::from(*byte)));
        at += end + 4 + size;
    }
}

/// The length of the fields after the last chunk, from the line end before the first of them to the
/// empty line.
fn read_trailers(bytes: &[u8]) -> Result<Option<usize>, String> {
    let Some((lines, length)) = read_head(bytes)? else { return Ok(None) };
    let fields = read_fields(&lines[1..])?;
    match fields.iter().find(|(name, _)| DECISIVE_FIELDS.contains(&&name[..])) {
        Some((name, _)) => Err(format!("trailer {name:?}")),
        None => Ok(Some(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_read_once_it_is_whole() {
        let bytes = b"POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        for length in 0..bytes.len() {
            assert_eq!(read_request(&bytes[..length]), Ok(None), "{length}");
        }
        let with_trailer =
            b"POST /a HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n";
        let request = read_request(with_trailer).unwrap().unwrap();
        assert_eq!(request.length, with_trailer.len());
        let request = read_request(bytes).unwrap().unwrap();
        assert_eq!((&request.start[..], &request.body[..]), ("POST /a", "hi"));
        assert_eq!(request.length, bytes.len());
    }

    #[test]
    fn what_two_programs_could_read_differently_is_an_error() {
        for fields in [
            "content-length: 2\r\ntransfer-encoding: chunked\r\n",
            "content-length: 2\r\ncontent-length: 2\r\n",
            "content-length: +2\r\n",
            "content_length: 2\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "x: y\nz: y\r\n",
            "host: h\r\n",
            "x y: z\r\n",
        ] {
            let text = format!("POST /a HTTP/1.1\r\nhost: h\r\n{fields}\r\nhi");
            assert!(read_request(text.as_bytes()).is_err(), "{fields}");
        }
        for chunks in [
            "2;a\r\nhi\r\n",
            "2\nhi\r\n",
            "+2\r\nhi\r\n",
            "1\r\nhi\r\n0\r\n\r\n",
            "0\r\nhost: h\r\n\r\n",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
            assert_ne!(read_answer(text.as_bytes(), "GET").map(|_| ()), Ok(()), "{chunks}");
        }
    }
}
