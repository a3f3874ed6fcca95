//! The message protocol of Intel's quote generation service (QGS): a TD report in, a quote out.
//!
//! Intel SGX Data Center Attestation Primitives, `qgs_msg_lib.h`, version 1: a big-endian length
//! of 4 bytes, then a header (major and minor version u16, type, size and error code u32, all
//! little-endian), then the sizes and the bytes of the parts.

use std::{
    io::{self, ErrorKind, Read, Write},
    time::Instant,
};

use confide_evidence::quote::QUOTE_LENGTH_MAX;

use crate::error::AttesterError;

/// The length of a TD report in bytes (Intel TDX Module, `TDREPORT_STRUCT`).
pub const TD_REPORT_LENGTH: usize = 1024;

const HEADER_LENGTH: usize = 16;
/// The bytes of the header and of the two sizes.
const PRELUDE_LENGTH: usize = HEADER_LENGTH + 8;
const GET_QUOTE_REQUEST: u32 = 0;
const GET_QUOTE_RESPONSE: u32 = 1;
const MAJOR_VERSION: u16 = 1;
/// Version 1.0, which a service of version 1.1 answers as well.
const MINOR_VERSION: u16 = 0;
/// The longest answer: a quote, the identity of the quoting enclave that made it (32 bytes), the
/// prelude.
const ANSWER_LENGTH_MAX: usize = QUOTE_LENGTH_MAX + PRELUDE_LENGTH + 256;

/// The request for a quote over `report`, with its length in front.
pub fn encode_request(report: &[u8; TD_REPORT_LENGTH]) -> Vec<u8> {
    let size = PRELUDE_LENGTH + report.len();
    let mut message = Vec::with_capacity(4 + size);
    message.extend((size as u32).to_be_bytes());
    message.extend(MAJOR_VERSION.to_le_bytes());
    message.extend(MINOR_VERSION.to_le_bytes());
    for number in [GET_QUOTE_REQUEST, size as u32, 0, report.len() as u32, 0] {
        message.extend(number.to_le_bytes());
    }
    message.extend_from_slice(report);
    message
}

/// The quote in an answer, which comes without the length in front.
///
/// # Errors
/// [`AttesterError::Service`] if a field of the answer has another value than a quote's.
pub fn decode_quote(answer: &[u8]) -> Result<&[u8], AttesterError> {
    let length = answer.len();
    if length < PRELUDE_LENGTH {
        return Err(field_error("length", PRELUDE_LENGTH as u64, length as u64));
    }
    let number = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&answer[at..at + 4]);
        u64::from(u32::from_le_bytes(four))
    };
    let (error, selected, quote) = (number(12), number(16), number(20));
    // The minor version is the service's: its answer to this request has the same parts.
    check_field("major version", MAJOR_VERSION.into(), number(0) & 0xffff)?;
    check_field("message type", GET_QUOTE_RESPONSE.into(), number(4))?;
    check_field("error code", 0, error)?;
    check_field("message size", length as u64, number(8))?;
    check_field("sizes of the parts", (length - PRELUDE_LENGTH) as u64, selected + quote)?;
    Ok(&answer[length - quote as usize..])
}

/// Asks the service at the other end of `stream`, whose single steps have a limit of their own; no
/// step is begun after `until`, however many bytes came before it.
///
/// # Errors
/// If the stream fails, time is up, or the service answers something other than a quote.
pub fn request_quote(
    stream: &mut (impl Read + Write),
    report: &[u8; TD_REPORT_LENGTH],
    until: Instant,
) -> Result<Vec<u8>, AttesterError> {
    stream.write_all(&encode_request(report)).map_err(|source| device_error("write to", source))?;
    let mut length = [0; 4];
    read_exact_until(stream, &mut length, until)
        .map_err(|source| device_error("read from", source))?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_LENGTH_MAX {
        return Err(field_error("length", ANSWER_LENGTH_MAX as u64, length as u64));
    }
    let mut answer = vec![0; length];
    read_exact_until(stream, &mut answer, until)
        .map_err(|source| device_error("read from", source))?;
    Ok(decode_quote(&answer)?.to_vec())
}

/// Reads until `room` is full. A host that sends a byte at a time must not hold the device's thread
/// for as long as it likes.
fn read_exact_until(stream: &mut impl Read, mut room: &mut [u8], until: Instant) -> io::Result<()> {
    while !room.is_empty() {
        if Instant::now() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => room = &mut room[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn device_error(action: &'static str, source: io::Error) -> AttesterError {
    AttesterError::Io { action, path: "the quote generation service".into(), source }
}

fn check_field(subject: &'static str, wanted: u64, got: u64) -> Result<(), AttesterError> {
    if wanted == got { Ok(()) } else { Err(field_error(subject, wanted, got)) }
}

fn field_error(subject: &'static str, wanted: u64, got: u64) -> AttesterError {
    AttesterError::Service { subject, wanted, got }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixStream, thread, time::Duration};

    use super::*;

    /// An answer as QEMU's client of the service parses it.
    fn answer(selected: &[u8], quote: &[u8]) -> Vec<u8> {
        let size = (PRELUDE_LENGTH + selected.len() + quote.len()) as u32;
        let mut bytes = vec![1, 0, 1, 0];
        for number in [1, size, 0, selected.len() as u32, quote.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        [bytes.as_slice(), selected, quote].concat()
    }

    #[test]
    fn a_service_is_asked_and_its_quote_taken() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let service = thread::spawn(move || {
            let mut request = [0; 4 + PRELUDE_LENGTH + TD_REPORT_LENGTH];
            there.read_exact(&mut request).unwrap();
            assert_eq!(request[..4], 1048_u32.to_be_bytes());
            assert_eq!(request[4..8], [1, 0, 0, 0]);
            assert_eq!(request[12..16], 1048_u32.to_le_bytes());
            assert_eq!(request[20..24], 1024_u32.to_le_bytes());
            assert_eq!(request[28..], [7; TD_REPORT_LENGTH]);
            let answer = answer(&[3; 16], b"a quote");
            there.write_all(&(answer.len() as u32).to_be_bytes()).unwrap();
            there.write_all(&answer).unwrap();
        });
        assert_eq!(request_quote(&mut here, &[7; TD_REPORT_LENGTH], later()).unwrap(), b"a quote");
        service.join().unwrap();
    }

    #[test]
    fn each_field_of_an_answer_that_is_wrong_is_named() {
        let good = answer(&[], b"a quote");
        assert_eq!(decode_quote(&good).unwrap(), b"a quote");
        for (at, wanted) in [
            (0, "major version"),
            (4, "message type"),
            (8, "message size"),
            (12, "error code"),
            (16, "sizes of the parts"),
            (20, "sizes of the parts"),
            (23, "sizes of the parts"),
        ] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let Err(AttesterError::Service { subject, .. }) = decode_quote(&bad) else {
                panic!("byte {at} was not noticed");
            };
            assert_eq!(subject, wanted);
        }
        assert!(decode_quote(&good[..PRELUDE_LENGTH - 1]).is_err());
        assert!(decode_quote(&[]).is_err());
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_read() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(
            request_quote(&mut here, &[0; TD_REPORT_LENGTH], later()),
            Err(AttesterError::Service { subject: "length", .. })
        ));
    }

    #[test]
    fn a_service_that_drips_is_given_up_at_the_deadline() {
        /// An endless answer, a byte at a time.
        struct Dripping(u32);

        impl Read for Dripping {
            fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                assert!(self.0 < 100, "it is read past the deadline");
                room[0] = 0;
                thread::sleep(Duration::from_millis(1));
                Ok(1)
            }
        }

        impl Write for Dripping {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let until = Instant::now();
        let gave_up = request_quote(&mut Dripping(0), &[0; TD_REPORT_LENGTH], until);
        let Err(AttesterError::Io { source, .. }) = gave_up else { panic!("{gave_up:?}") };
        assert_eq!(source.kind(), ErrorKind::TimedOut);
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }
}
