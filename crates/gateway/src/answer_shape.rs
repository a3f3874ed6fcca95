//! The shape of answers on the wire: the size and the time of what leaves, whatever the engine made.

use std::{fmt, str::FromStr, time::Duration};

use confide_encrypted_body::FRAME_OVERHEAD_BYTES;

use crate::{error::GatewayError, slot_queue::WAITING_BYTES_MAX};

/// The two line ends that HTTP/1.1 puts around the bytes of one slot, besides their number in
/// hexadecimal digits (RFC 9112 section 7.1).
const LINE_END_BYTES: u64 = 4;
/// The bytes that TLS 1.3 adds to what one record carries: header, content type and tag (RFC 8446
/// section 5.2).
const TLS_RECORD_BYTES: u64 = 22;

/// The shape of answers. A stream of events leaves in *slots*: every `interval` one write of
/// `record_bytes` bytes, and as many slots as a multiple of `slots_step`. Any other answer is a
/// document, whose length and time are rounded up to those of `slots_step` slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerShape {
    /// The bytes of the body in one slot: one TLS record holds them.
    record_bytes: u16,
    /// The time from one slot to the next, in milliseconds.
    interval_ms: u16,
    /// The number of slots of a stream is a multiple of this.
    slots_step: u16,
}

/// The price of an answer shape, computed from its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerShapePrice {
    /// The bytes of one record on the wire, over HTTP/1.1 and TLS 1.3.
    pub wire_record_bytes: u64,
    /// The bytes of a stream on the wire in one second.
    pub wire_bytes_per_s: f64,
    /// The bytes of a stream with an encrypted body on the wire in one second: each slot is a frame.
    pub encrypted_wire_bytes_per_s: f64,
    /// The bytes of the engine's events that fit into one second. A faster engine has to wait.
    pub event_bytes_per_s: f64,
    /// The longest time for which an event waits that fits into one slot and finds no other before it,
    /// in milliseconds; half of it on average.
    pub event_wait_ms_max: f64,
    /// The bytes from which an event breaks its stream.
    pub event_bytes_max: u64,
    /// The longest time from the last token to the end of a stream, and from the last byte of a JSON
    /// answer to its end, in milliseconds; half of it on average.
    pub end_wait_ms_max: f64,
    /// The bytes of the shortest answer, of which the length of every answer is a multiple.
    pub answer_bytes_min: u64,
}

impl AnswerShape {
    /// The smallest and the largest number of bytes of a slot. The largest one fits into one TLS
    /// record and one frame of HTTP/2, with what HTTP adds.
    pub const RECORD_BYTES: (u16, u16) = (128, 16_000);
    /// The shortest and the longest interval, in milliseconds.
    pub const INTERVAL_MS: (u16, u16) = (5, 1000);
    /// The smallest and the largest step of the number of slots.
    pub const SLOTS_STEP: (u16, u16) = (1, 4096);

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`GatewayError::AnswerShape`] for a number that is out of its range.
    pub fn new(record_bytes: u16, interval_ms: u16, slots_step: u16) -> Result<Self, GatewayError> {
        for (part, number, (least, most)) in [
            ("bytes", record_bytes, Self::RECORD_BYTES),
            ("milliseconds", interval_ms, Self::INTERVAL_MS),
            ("slots", slots_step, Self::SLOTS_STEP),
        ] {
            if !(least..=most).contains(&number) {
                let wanted = format!("{least} to {most} {part}");
                return Err(GatewayError::AnswerShape { wanted, got: number.to_string() });
            }
        }
        Ok(Self { record_bytes, interval_ms, slots_step })
    }

    /// The bytes of the body in one slot.
    pub fn record_bytes(&self) -> u16 {
        self.record_bytes
    }

    /// The time from one slot to the next, in milliseconds.
    pub fn interval_ms(&self) -> u16 {
        self.interval_ms
    }

    /// The step of the number of slots.
    pub fn slots_step(&self) -> u16 {
        self.slots_step
    }

    /// The time from one slot to the next.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.into())
    }

    /// The time of as many slots as one step has.
    pub(crate) fn step_duration(&self) -> Duration {
        self.interval() * u32::from(self.slots_step)
    }

    /// The bytes of as many slots as one step has.
    pub(crate) fn step_bytes(&self) -> u64 {
        u64::from(self.record_bytes) * u64::from(self.slots_step)
    }

    /// The price, computed.
    pub fn price(&self) -> AnswerShapePrice {
        let on_wire = |bytes: u64| {
            let digits = u64::from(bytes.ilog(16)) + 1;
            bytes + digits + LINE_END_BYTES + TLS_RECORD_BYTES
        };
        let record_bytes = u64::from(self.record_bytes);
        let wire_record_bytes = on_wire(record_bytes);
        let encrypted_bytes = on_wire(record_bytes + FRAME_OVERHEAD_BYTES as u64);
        let slots_per_s = 1000.0 / f64::from(self.interval_ms);
        AnswerShapePrice {
            wire_record_bytes,
            wire_bytes_per_s: wire_record_bytes as f64 * slots_per_s,
            encrypted_wire_bytes_per_s: encrypted_bytes as f64 * slots_per_s,
            event_bytes_per_s: f64::from(self.record_bytes) * slots_per_s,
            event_wait_ms_max: f64::from(self.interval_ms),
            event_bytes_max: WAITING_BYTES_MAX as u64,
            end_wait_ms_max: f64::from(self.interval_ms) * f64::from(self.slots_step),
            answer_bytes_min: self.step_bytes(),
        }
    }
}

impl FromStr for AnswerShape {
    type Err = GatewayError;

    /// Parses `BYTES/MS/SLOTS`.
    fn from_str(text: &str) -> Result<Self, GatewayError> {
        let malformed = || GatewayError::AnswerShape {
            wanted: "BYTES/MS/SLOTS, for instance 1024/50/64".into(),
            got: text.to_owned(),
        };
        let is_number =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = text.split('/').collect();
        let [bytes, interval, slots] = parts[..] else { return Err(malformed()) };
        let parse = |part: &str| match is_number(part) {
            true => part.parse::<u16>().map_err(|_| malformed()),
            false => Err(malformed()),
        };
        Self::new(parse(bytes)?, parse(interval)?, parse(slots)?)
    }
}

impl fmt::Display for AnswerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.record_bytes, self.interval_ms, self.slots_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_as_it_is_written() {
        for text in ["1024/50/64", "128/5/1", "16000/1000/4096"] {
            assert_eq!(text.parse::<AnswerShape>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_shape_out_of_range_or_of_another_form_is_refused() {
        for text in [
            "",
            "1024",
            "1024/50",
            "1024/50/64/1",
            "127/50/64",
            "16001/50/64",
            "1024/4/64",
            "1024/1001/64",
            "1024/50/0",
            "1024/50/4097",
            "70000/50/64",
            "+1024/50/64",
            "1024/ 50/64",
            "1024/50/",
            "a/b/c",
        ] {
            let parsed = text.parse::<AnswerShape>();
            assert!(matches!(parsed, Err(GatewayError::AnswerShape { .. })), "{text}");
        }
    }

    #[test]
    fn the_price_follows_from_the_numbers() {
        let price = "1024/50/64".parse::<AnswerShape>().unwrap().price();
        assert_eq!(price.wire_record_bytes, 1024 + 7 + 22);
        assert_eq!(price.wire_bytes_per_s, 21_060.0);
        assert_eq!(price.encrypted_wire_bytes_per_s, 21_460.0);
        assert_eq!(price.event_bytes_per_s, 20_480.0);
        assert_eq!((price.event_wait_ms_max, price.end_wait_ms_max), (50.0, 3200.0));
        assert_eq!(price.answer_bytes_min, 65_536);
        assert_eq!("4096/50/1".parse::<AnswerShape>().unwrap().price().wire_record_bytes, 4126);
        // The frame's 20 bytes make the length of its chunk a digit longer.
        let price = "4090/1000/1".parse::<AnswerShape>().unwrap().price();
        assert_eq!((price.wire_bytes_per_s, price.encrypted_wire_bytes_per_s), (4119.0, 4140.0));
    }
}
