//! Reads the server name of a ClientHello (RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3).

use crate::server_name::{ServerName, ServerNameError};

/// The largest number of bytes of the records that carry a ClientHello. Hellos with hybrid key shares have some 1,800.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;

/// The largest number of records that one ClientHello may be cut into.
const RECORDS_MAX: usize = 64;
/// The length of the header of a record: type, version, length.
const RECORD_HEADER: usize = 5;
/// The largest number of bytes in a record (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
const TYPE_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
/// The length of the header of a handshake message: type, length.
const MESSAGE_HEADER: usize = 4;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;

/// The reason why a connection does not begin with a usable ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first bytes are not a TLS record with a handshake message.
    #[error("no TLS: wanted a handshake record")]
    NotTls,
    /// The first handshake message is another one.
    #[error("TLS handshake: wanted a ClientHello, got message {got}")]
    OtherMessage {
        /// The message's type.
        got: u8,
    },
    /// The ClientHello, or the records around it, are longer than allowed.
    #[error(
        "ClientHello is too long: wanted at most {HELLO_BYTES_MAX} bytes in {RECORDS_MAX} records"
    )]
    TooLong,
    /// A part violates the encoding.
    #[error("ClientHello is malformed: {part}")]
    Malformed {
        /// The part.
        part: &'static str,
    },
    /// The server name is not a DNS name.
    #[error("ClientHello: {0}")]
    Name(#[from] ServerNameError),
    /// The client names no server, so no route can be chosen.
    #[error("ClientHello names no server")]
    NoName,
}

const fn malformed_hello(part: &'static str) -> HelloError {
    HelloError::Malformed { part }
}

/// Parses the ClientHello at the start of a connection's bytes and returns the server name in it, or `None` if more
/// bytes are needed.
///
/// # Errors
/// A [`HelloError`] as soon as no further bytes can complete a ClientHello with a server name.
pub fn parse_client_hello(bytes: &[u8]) -> Result<Option<ServerName>, HelloError> {
    let within = &bytes[..bytes.len().min(HELLO_BYTES_MAX)];
    let (mut message, mut rest) = (Vec::new(), within);
    for _ in 0..RECORDS_MAX {
        let Some(payload) = take_record(&mut rest)? else {
            let is_full = within.len() == HELLO_BYTES_MAX;
            return if is_full { Err(HelloError::TooLong) } else { Ok(None) };
        };
        message.extend_from_slice(payload);
        let Some((header, body)) = message.split_at_checked(MESSAGE_HEADER) else { continue };
        if header[0] != MESSAGE_CLIENT_HELLO {
            return Err(HelloError::OtherMessage { got: header[0] });
        }
        let length =
            usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
        if length > HELLO_BYTES_MAX {
            return Err(HelloError::TooLong);
        }
        if let Some(body) = body.get(..length) {
            return find_server_name(body)?.map(Some).ok_or(HelloError::NoName);
        }
    }
    Err(HelloError::TooLong)
}

/// Takes a whole record and returns its payload, or `None` if more bytes are needed.
fn take_record<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, HelloError> {
    // What is known of the header is checked at once: a client that does not speak TLS may wait for an answer.
    if rest.first().is_some_and(|kind| *kind != TYPE_HANDSHAKE)
        || rest.get(1).is_some_and(|major| *major != 3)
    {
        return Err(HelloError::NotTls);
    }
    let Some((header, after)) = rest.split_at_checked(RECORD_HEADER) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > RECORD_BYTES_MAX {
        return Err(malformed_hello("length of a record"));
    }
    let Some((payload, after)) = after.split_at_checked(length) else { return Ok(None) };
    *rest = after;
    Ok(Some(payload))
}

/// Finds the host name in the body of a ClientHello; `None` if it has none.
fn find_server_name(body: &[u8]) -> Result<Option<ServerName>, HelloError> {
    let mut body = Reader(body);
    body.take(2 + 32, "version and random")?;
    if body.take_vector8("session identifier")?.len() > 32 {
        return Err(malformed_hello("session identifier"));
    }
    let suites = body.take_vector16("cipher suites")?;
    if suites.is_empty() || suites.len() % 2 != 0 {
        return Err(malformed_hello("cipher suites"));
    }
    if body.take_vector8("compression methods")?.is_empty() {
        return Err(malformed_hello("compression methods"));
    }
    if body.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(body.take_vector16("extensions")?);
    body.expect_end("end")?;
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.take_u16("type of an extension")?;
        let content = extensions.take_vector16("extension")?;
        if kind == EXTENSION_SERVER_NAME && name.replace(parse_name_list(content)?).is_some() {
            return Err(malformed_hello("two extensions with a server name"));
        }
    }
    Ok(name)
}

/// Parses a `ServerNameList` with its only entry, a host name.
fn parse_name_list(content: &[u8]) -> Result<ServerName, HelloError> {
    let mut content = Reader(content);
    let mut list = Reader(content.take_vector16("list of server names")?);
    content.expect_end("list of server names")?;
    if list.take(1, "type of a server name")? != [NAME_TYPE_HOST] {
        return Err(malformed_hello("type of a server name"));
    }
    let name = list.take_vector16("server name")?;
    list.expect_end("list of server names")?;
    Ok(ServerName::parse(name)?)
}

/// The bytes that are still to be parsed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, part: &'static str) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(malformed_hello(part))?;
        self.0 = rest;
        Ok(taken)
    }

    fn take_u16(&mut self, part: &'static str) -> Result<u16, HelloError> {
        let bytes = self.take(2, part)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes a vector with a length of one byte.
    fn take_vector8(&mut self, part: &'static str) -> Result<&'a [u8], HelloError> {
        let length = self.take(1, part)?[0];
        self.take(usize::from(length), part)
    }

    /// Takes a vector with a length of two bytes.
    fn take_vector16(&mut self, part: &'static str) -> Result<&'a [u8], HelloError> {
        let length = self.take_u16(part)?;
        self.take(usize::from(length), part)
    }

    fn expect_end(&self, part: &'static str) -> Result<(), HelloError> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed_hello(part)) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], content].concat()
    }

    /// An extension with one host name.
    fn name_extension(name: &[u8]) -> Vec<u8> {
        let entry = [&[NAME_TYPE_HOST][..], &vector16(name)].concat();
        [&[0, 0][..], &vector16(&vector16(&entry))].concat()
    }

    /// A handshake message with these extensions.
    fn message(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(vector16(extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[MESSAGE_CLIENT_HELLO], &length[1..], &body[..]].concat()
    }

    fn record(payload: &[u8]) -> Vec<u8> {
        [&[TYPE_HANDSHAKE, 3, 1][..], &vector16(payload)].concat()
    }

    /// A ClientHello in one record that names `name`.
    pub(crate) fn hello(name: &str) -> Vec<u8> {
        record(&message(&[&[0, 43, 0, 3, 2, 3, 4][..], &name_extension(name.as_bytes())].concat()))
    }

    #[test]
    fn the_name_is_found_once_all_bytes_are_there_and_never_before() {
        let hello = hello("A.example");
        for end in 0..hello.len() {
            assert_eq!(parse_client_hello(&hello[..end]), Ok(None), "{end}");
        }
        let found = parse_client_hello(&hello).unwrap().unwrap();
        assert_eq!(found.as_str(), "a.example");
        let more = [&hello[..], &[20, 3, 3, 0, 1, 1]].concat();
        assert_eq!(parse_client_hello(&more), Ok(Some(found)), "early data may follow");
    }

    #[test]
    fn a_hello_may_be_cut_into_records_of_any_length() {
        let message = message(&name_extension(b"a.example"));
        for length in [2, 3, 4, 5, 50] {
            let records: Vec<u8> = message.chunks(length).flat_map(record).collect();
            let found = parse_client_hello(&records).unwrap().unwrap();
            assert_eq!(found.as_str(), "a.example", "records of {length} bytes");
        }
        let records: Vec<u8> = message.chunks(1).flat_map(record).collect();
        assert_eq!(
            parse_client_hello(&records),
            Err(HelloError::TooLong),
            "more than {RECORDS_MAX}"
        );
    }

    #[test]
    fn another_protocol_is_refused_at_its_first_byte() {
        for start in [&b"G"[..], b"SSH", b"\x16\x02", &[0x80, 0x2e]] {
            assert_eq!(parse_client_hello(start), Err(HelloError::NotTls), "{start:?}");
        }
        assert_eq!(
            parse_client_hello(&record(&[2, 0, 0, 0])),
            Err(HelloError::OtherMessage { got: 2 })
        );
    }

    #[test]
    fn a_hello_without_a_name_is_refused() {
        assert_eq!(parse_client_hello(&record(&message(&[]))), Err(HelloError::NoName));
        let mut old = message(&[]);
        old.truncate(old.len() - 2);
        old[3] -= 2;
        assert_eq!(
            parse_client_hello(&record(&old)),
            Err(HelloError::NoName),
            "no extensions at all"
        );
    }

    #[test]
    fn violations_of_the_encoding_are_refused() {
        let twice = [name_extension(b"a.example"), name_extension(b"b.example")].concat();
        let two_names = [&[0, 0][..], &vector16(&vector16(b"\0\0\x01a\0\0\x01b"))].concat();
        let other_type = [&[0, 0][..], &vector16(&vector16(b"\x01\0\x01a"))].concat();
        let trailing =
            [&[0, 0][..], &vector16(&[&vector16(b"\0\0\x01a")[..], b"x"].concat())].concat();
        for extensions in [&twice[..], &two_names, &other_type, &trailing, &[0, 0, 0, 9], &[0]] {
            let parsed = parse_client_hello(&record(&message(extensions)));
            assert!(matches!(parsed, Err(HelloError::Malformed { .. })), "{parsed:?}");
        }
        let address = parse_client_hello(&record(&message(&name_extension(b"192.0.2.1"))));
        assert_eq!(address, Err(HelloError::Name(ServerNameError::Address)));
        assert!(matches!(parse_client_hello(&[22, 3, 1, 0, 0]), Err(HelloError::Malformed { .. })));
    }

    #[test]
    fn a_hello_is_bounded_before_it_is_complete() {
        let announced = record(&[1, 0, 0x40, 1, 0]);
        assert_eq!(parse_client_hello(&announced), Err(HelloError::TooLong), "16,385 bytes");
        let mut endless = vec![22, 3, 1, 0x40, 0];
        endless.resize(HELLO_BYTES_MAX - 1, 0);
        assert_eq!(parse_client_hello(&endless), Ok(None));
        endless.push(0);
        assert_eq!(parse_client_hello(&endless), Err(HelloError::TooLong));
        let padding = [&[0, 21][..], &vector16(&vec![0; HELLO_BYTES_MAX - 70])].concat();
        let long = message(&[&name_extension(b"a.example")[..], &padding].concat());
        let long: Vec<u8> = long.chunks(8192).flat_map(record).collect();
        assert!(long.len() > HELLO_BYTES_MAX);
        assert_eq!(parse_client_hello(&long), Err(HelloError::TooLong), "as its first 16 KiB");
    }
}
