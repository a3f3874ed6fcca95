//! The PROXY protocol, versions 1 and 2, by which a listed proxy announces its client.
//!
//! The parser follows HAProxy's specification (doc/proxy-protocol.txt, sections 2.1 and 2.2)
//! strictly: one spelling for each header, TCP only, bounded lengths.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest number of bytes of a header of version 1, with its line end.
const TEXT_BYTES_MAX: usize = 107;
/// The largest number of bytes of a header of version 2: addresses need 36, and the proxy's TLV
/// fields (a client certificate's name, a cloud's identifiers) the rest.
const BINARY_BYTES_MAX: usize = 16 + 2048;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const TEXT_START: &[u8; 6] = b"PROXY ";

/// The peer that a proxy's header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncedPeer {
    /// A client of the proxy, with its address and port.
    Client(SocketAddr),
    /// The proxy itself, for instance for a health check.
    Proxy,
}

/// The reason why a header is refused.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The connection does not begin with a header of either version.
    #[error("no PROXY protocol header: wanted one of version 1 or 2")]
    Signature,
    /// The header is longer than the limit.
    #[error("PROXY protocol header is too long: wanted at most {wanted} bytes")]
    Length {
        /// The limit in bytes.
        wanted: usize,
    },
    /// A part of the header violates the specification.
    #[error("PROXY protocol header is malformed: {part}")]
    Malformed {
        /// The part.
        part: &'static str,
    },
    /// The connection ended or failed before the header was complete.
    #[error("PROXY protocol header is incomplete: {0}")]
    Io(#[from] io::Error),
}

const fn malformed_header(part: &'static str) -> ProxyHeaderError {
    ProxyHeaderError::Malformed { part }
}

/// Parses a header at the start of `bytes`. Returns the announced peer and the header's length, or
/// `None` if more bytes are needed.
///
/// # Errors
/// A [`ProxyHeaderError`] as soon as no further bytes can complete a valid header.
pub fn parse_proxy_header(
    bytes: &[u8],
) -> Result<Option<(AnnouncedPeer, usize)>, ProxyHeaderError> {
    if matches_prefix(bytes, SIGNATURE) {
        return if bytes.len() < SIGNATURE.len() { Ok(None) } else { parse_v2_header(bytes) };
    }
    if matches_prefix(bytes, TEXT_START) {
        return if bytes.len() < TEXT_START.len() { Ok(None) } else { parse_v1_header(bytes) };
    }
    Err(ProxyHeaderError::Signature)
}

/// Whether `bytes` and `start` agree over the length of the shorter one.
fn matches_prefix(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(got, wanted)| got == wanted)
}

/// Parses a header of version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443` and CRLF.
fn parse_v1_header(bytes: &[u8]) -> Result<Option<(AnnouncedPeer, usize)>, ProxyHeaderError> {
    let too_long = ProxyHeaderError::Length { wanted: TEXT_BYTES_MAX };
    let within = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Some(end) = within.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if bytes.len() < TEXT_BYTES_MAX { Ok(None) } else { Err(too_long) };
    };
    match within.get(end..end + 2) {
        Some(b"\r\n") => {}
        None if within.get(end) == Some(&b'\r') && bytes.len() < TEXT_BYTES_MAX => return Ok(None),
        _ => return Err(malformed_header("line end")),
    }
    let line = &within[TEXT_START.len()..end];
    let line = std::str::from_utf8(line).map_err(|_| malformed_header("text"))?;
    let length = end + 2;
    let mut parts = line.split(' ');
    let (family, source) = (parts.next(), parts.next());
    if family == Some("UNKNOWN") {
        return Ok(Some((AnnouncedPeer::Proxy, length)));
    }
    let (destination, port, own_port) = (parts.next(), parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(malformed_header("fields"));
    }
    let (source, _) = match family {
        Some("TCP4") => {
            (parse_v1_address::<Ipv4Addr>(source)?, parse_v1_address::<Ipv4Addr>(destination)?)
        }
        Some("TCP6") => {
            (parse_v1_address::<Ipv6Addr>(source)?, parse_v1_address::<Ipv6Addr>(destination)?)
        }
        _ => return Err(malformed_header("family")),
    };
    parse_v1_port(own_port)?;
    Ok(Some((AnnouncedPeer::Client(SocketAddr::new(source, parse_v1_port(port)?)), length)))
}

fn parse_v1_address<A: std::str::FromStr + Into<IpAddr>>(
    text: Option<&str>,
) -> Result<IpAddr, ProxyHeaderError> {
    let address = text.and_then(|text| text.parse::<A>().ok());
    address.map(Into::into).ok_or(malformed_header("address"))
}

/// Parses a decimal port without sign and leading zeros.
fn parse_v1_port(text: Option<&str>) -> Result<u16, ProxyHeaderError> {
    let text = text.ok_or(malformed_header("port"))?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return Err(malformed_header("port"));
    }
    text.parse().map_err(|_| malformed_header("port"))
}

/// Parses a header of version 2: signature, version and command, family, length as u16, addresses,
/// TLV fields.
fn parse_v2_header(bytes: &[u8]) -> Result<Option<(AnnouncedPeer, usize)>, ProxyHeaderError> {
    let Some(&command) = bytes.get(12) else { return Ok(None) };
    if !matches!(command, 0x20 | 0x21) {
        return Err(malformed_header("version or command"));
    }
    let Some(&family) = bytes.get(13) else { return Ok(None) };
    let is_proxy = match (command, family) {
        // The addresses of a proxy's own connection are ignored (section 2.2, LOCAL).
        (0x20, _) | (_, 0x00) => true,
        (_, 0x11 | 0x21) => false,
        _ => return Err(malformed_header("family")),
    };
    let Some(&[high, low]) = bytes.get(14..16) else { return Ok(None) };
    let end = 16 + usize::from(u16::from_be_bytes([high, low]));
    if end > BINARY_BYTES_MAX {
        return Err(ProxyHeaderError::Length { wanted: BINARY_BYTES_MAX });
    }
    let addresses = match family {
        _ if is_proxy => 0,
        0x11 => 12,
        _ => 36,
    };
    if end < 16 + addresses {
        return Err(malformed_header("length"));
    }
    let Some(rest) = bytes.get(16..end) else { return Ok(None) };
    if is_proxy {
        return Ok(Some((AnnouncedPeer::Proxy, end)));
    }
    let source = match family {
        0x11 => rest.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        _ => rest.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
    };
    // Two addresses, then two ports.
    let port = rest.get(addresses - 4..addresses - 2);
    match (source, port) {
        (Some(source), Some(&[high, low])) => {
            let port = u16::from_be_bytes([high, low]);
            Ok(Some((AnnouncedPeer::Client(SocketAddr::new(source, port)), end)))
        }
        _ => Err(malformed_header("addresses")),
    }
}

/// Encodes a header of version 2 that announces a TCP connection from `source` to `destination`. Where only one of the
/// two is an IPv6 address, the other is mapped to IPv6 (`::ffff:192.0.2.1`).
pub fn encode_proxy_header(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.push(0x21);
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([0x11, 0, 12]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (from, to) => {
            bytes.extend([0x21, 0, 36]);
            bytes.extend(ipv6_octets(from));
            bytes.extend(ipv6_octets(to));
        }
    }
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(destination.port().to_be_bytes());
    bytes
}

fn ipv6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Reads the header at the start of a connection. Also returns the bytes read after it.
pub(crate) async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(AnnouncedPeer, Vec<u8>), ProxyHeaderError> {
    let mut bytes = Vec::with_capacity(256);
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some((announced, length)) = parse_proxy_header(&bytes)? {
            return Ok((announced, bytes.split_off(length)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Source 192.0.2.1:56324, destination 198.51.100.1:443.
    const FOUR: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];

    fn client(text: &str) -> AnnouncedPeer {
        AnnouncedPeer::Client(text.parse().expect("an address"))
    }

    #[test]
    fn headers_of_both_versions_announce_their_source() {
        let six = b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n";
        let mut six_binary = [0; 36];
        six_binary[..16].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().expect("one").octets());
        six_binary[32..].copy_from_slice(&[0xdc, 0x04, 0x01, 0xbb]);
        let mut with_notes = FOUR.to_vec();
        with_notes.extend([0x04, 0, 3, 1, 2, 3]);
        for (bytes, wanted) in [
            (
                b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec(),
                client("192.0.2.1:56324"),
            ),
            (six.to_vec(), client("[2001:db8::1]:56324")),
            (b"PROXY UNKNOWN\r\n".to_vec(), AnnouncedPeer::Proxy),
            (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n".to_vec(), AnnouncedPeer::Proxy),
            (binary(0x21, 0x11, FOUR), client("192.0.2.1:56324")),
            (binary(0x21, 0x21, &six_binary), client("[2001:db8::1]:56324")),
            (binary(0x21, 0x11, &with_notes), client("192.0.2.1:56324")),
            (binary(0x20, 0x11, FOUR), AnnouncedPeer::Proxy),
            (binary(0x20, 0x00, &[]), AnnouncedPeer::Proxy),
            (binary(0x21, 0x00, &[]), AnnouncedPeer::Proxy),
        ] {
            for end in 0..bytes.len() {
                let part = parse_proxy_header(&bytes[..end]);
                assert!(matches!(part, Ok(None)), "{end} of {bytes:?}: {part:?}");
            }
            let mut more = bytes.clone();
            more.extend(b"\x16\x03\x01");
            for whole in [&bytes, &more] {
                let read = parse_proxy_header(whole).expect("a header").expect("a whole one");
                assert_eq!(read, (wanted, bytes.len()));
            }
        }
    }

    #[test]
    fn what_is_encoded_is_parsed_again() {
        let to_four = "198.51.100.1:443".parse().expect("an address");
        let encoded = encode_proxy_header("192.0.2.1:56324".parse().expect("an address"), to_four);
        assert_eq!(encoded, binary(0x21, 0x11, FOUR));
        for source in ["[2001:db8::1]:56324", "192.0.2.1:56324", "[::ffff:192.0.2.1]:56324"] {
            for destination in [to_four, "[2001:db8::2]:443".parse().expect("an address")] {
                let source: SocketAddr = source.parse().expect("an address");
                let encoded = encode_proxy_header(source, destination);
                let (announced, length) =
                    parse_proxy_header(&encoded).expect("valid").expect("whole");
                let AnnouncedPeer::Client(client) = announced else { panic!("{announced:?}") };
                assert_eq!(length, encoded.len());
                assert_eq!(client.ip().to_canonical(), source.ip().to_canonical());
                assert_eq!(client.port(), source.port());
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let text = |line: &str| line.as_bytes().to_vec();
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        for bytes in [
            text("GET / HTTP/1.1\r\n"),
            text("\x16\x03\x01"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\rX"),
            text("PROXY TCP4 192.0.2.01 198.51.100.1 56324 443\r\n"),
            text("PROXY TCP4 192.0.2.1  198.51.100.1 56324 443\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 \r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 056324 443\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 +5 443\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n"),
            text("PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n"),
            text("PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n"),
            text("PROXY tcp4 192.0.2.1 198.51.100.1 1 2\r\n"),
            text("PROXY TCP4 host 198.51.100.1 1 2\r\n"),
            text(&long),
            binary(0x11, 0x11, FOUR),
            binary(0x22, 0x11, FOUR),
            binary(0x21, 0x12, FOUR),
            binary(0x21, 0x31, FOUR),
            binary(0x21, 0x11, &FOUR[..11]),
            binary(0x21, 0x21, FOUR),
            binary(0x21, 0x11, &[0; 2049]),
        ] {
            assert!(parse_proxy_header(&bytes).is_err(), "{bytes:?}");
        }
    }

    /// As the fuzz target `proxy_header`, over changed headers from one seed.
    #[test]
    fn what_is_read_of_the_whole_is_not_read_of_a_part() {
        let headers = [
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec(),
            b"PROXY UNKNOWN \r\n".to_vec(),
            binary(0x21, 0x11, FOUR),
            binary(0x20, 0x00, &[0; 300]),
        ];
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut read = 0;
        for _ in 0..20_000 {
            let mut bytes = headers[next(headers.len())].clone();
            for _ in 0..next(3) {
                let at = next(bytes.len());
                bytes[at] = b"\r\n 0.:\x00\x21\xff"[next(9)];
            }
            let Ok(Some((_, length))) = parse_proxy_header(&bytes) else { continue };
            read += 1;
            assert!(length <= bytes.len());
            for end in 0..length {
                let part = parse_proxy_header(&bytes[..end]);
                assert!(matches!(part, Ok(None)), "{end} of {bytes:?}: {part:?}");
            }
        }
        assert!(read > 1000, "{read} of the changed headers were read");
    }

    #[tokio::test]
    async fn what_follows_a_header_is_not_lost() {
        let bytes = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nhello";
        let (announced, rest) = read_proxy_header(&mut &bytes[..]).await.expect("a header");
        assert_eq!((announced, rest.as_slice()), (client("192.0.2.1:56324"), &b"hello"[..]));
        let cut = read_proxy_header(&mut &bytes[..20]).await;
        assert!(matches!(cut, Err(ProxyHeaderError::Io(_))), "{cut:?}");
    }
}
