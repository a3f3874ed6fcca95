//! The trace context that a client sends and an upstream receives (W3C Trace Context, level 1).

use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of a `traceparent` of version 00: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const TRACEPARENT_BYTES: usize = 55;

/// The caller's part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    /// The identifier of the trace, not zero.
    pub(crate) trace_id: u128,
    /// The identifier of the caller's span, not zero.
    pub(crate) span_id: u64,
    /// Whether the caller records the trace.
    pub(crate) is_sampled: bool,
}

impl TraceParent {
    /// Reads the one `traceparent` among `headers`; `None` if it is missing, repeated or malformed.
    pub(crate) fn find(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.to_str().ok()?),
            _ => None,
        }
    }

    /// Parses a `traceparent`. Later versions may append fields to those of version 00.
    fn parse(text: &str) -> Option<Self> {
        let (known, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
        let mut fields = known.split('-');
        let version = parse_digits(fields.next()?, 2)?;
        let trace_id = parse_digits(fields.next()?, 32)?;
        let span_id = u64::try_from(parse_digits(fields.next()?, 16)?).ok()?;
        let flags = parse_digits(fields.next()?, 2)?;
        let is_end_valid = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let is_valid = is_end_valid && fields.next().is_none() && trace_id != 0 && span_id != 0;
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }

    /// The field that the next server receives, in version 00.
    pub(crate) fn to_header(self) -> Option<HeaderValue> {
        let Self { trace_id, span_id, is_sampled } = self;
        let flags = u8::from(is_sampled);
        HeaderValue::try_from(format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}")).ok()
    }
}

/// Parses exactly `length` lower-case hexadecimal digits.
fn parse_digits(text: &str, length: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != length || !text.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_parent_is_read_and_written_unchanged() {
        let parent = TraceParent::parse(VALID).unwrap();
        assert_eq!(parent.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((parent.span_id, parent.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(parent.to_header().unwrap(), VALID);
        let unsampled = TraceParent::parse(&VALID.replace("-01", "-00")).unwrap();
        assert!(!unsampled.is_sampled);
        // Unknown flags are ignored, and fields of a later version.
        assert!(TraceParent::parse(&VALID.replace("-01", "-ff")).unwrap().is_sampled);
        let later = VALID.replacen("00-", "cc-", 1);
        assert_eq!(TraceParent::parse(&later), Some(parent));
        assert_eq!(TraceParent::parse(&format!("{later}-more")), Some(parent));
    }

    #[test]
    fn a_malformed_parent_is_ignored() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(TraceParent::find(&headers), None);
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(TraceParent::find(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert_eq!(TraceParent::find(&headers), None, "two parents");
    }
}
