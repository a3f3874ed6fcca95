//! Decodes content codings piece by piece, with a limit on the decoded length.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// The decoder of an answer's content coding.
pub(crate) enum ContentDecoder {
    /// The body is not coded.
    Identity(BoundedSink),
    /// gzip (RFC 1952), any number of members.
    Gzip(Box<MultiGzDecoder<BoundedSink>>),
}

/// The reason for which a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The decoded body is longer than its limit.
    TooLong,
    /// The body is not gzip, or is truncated.
    Malformed,
}

/// A buffer of decoded bytes that refuses more bytes than its limit.
pub(crate) struct BoundedSink {
    bytes: Vec<u8>,
    left: usize,
    is_full: bool,
}

impl Write for BoundedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            None => {
                self.is_full = true;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(left) => {
                self.left = left;
                self.bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ContentDecoder {
    /// The decoder of the content coding that an answer names; `None` if it is not supported. In
    /// all it returns at most `bytes_max` bytes.
    pub(crate) fn for_coding(coding: Option<&[u8]>, bytes_max: usize) -> Option<Self> {
        let sink = BoundedSink { bytes: Vec::new(), left: bytes_max, is_full: false };
        let Some(coding) = coding else { return Some(Self::Identity(sink)) };
        match coding.to_ascii_lowercase().as_slice() {
            b"identity" => Some(Self::Identity(sink)),
            b"gzip" | b"x-gzip" => Some(Self::Gzip(Box::new(MultiGzDecoder::new(sink)))),
            _ => None,
        }
    }

    /// Decodes a piece, and returns the bytes decoded so far.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, DecodeError> {
        let written = match self {
            Self::Identity(sink) => sink.write_all(piece),
            Self::Gzip(gzip) => gzip.write_all(piece).and_then(|()| gzip.flush()),
        };
        self.take_decoded(written)
    }

    /// Ends the body: returns the last decoded bytes, and refuses a truncated coding.
    pub(crate) fn finish(mut self, was_empty: bool) -> Result<Vec<u8>, DecodeError> {
        let ended = match &mut self {
            Self::Gzip(gzip) if !was_empty => gzip.try_finish(),
            _ => Ok(()),
        };
        self.take_decoded(ended)
    }

    /// Returns the bytes decoded so far, or the reason for which the last step failed.
    fn take_decoded(&mut self, outcome: io::Result<()>) -> Result<Vec<u8>, DecodeError> {
        let sink = match self {
            Self::Identity(sink) => sink,
            Self::Gzip(gzip) => gzip.get_mut(),
        };
        match outcome {
            Ok(()) => Ok(std::mem::take(&mut sink.bytes)),
            Err(_) if sink.is_full => Err(DecodeError::TooLong),
            Err(_) => Err(DecodeError::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(bytes: &[u8], piece: usize, max: usize) -> Result<Vec<u8>, DecodeError> {
        let mut decoder = ContentDecoder::for_coding(Some(b"gzip"), max).unwrap();
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            out.extend(decoder.push(piece)?);
        }
        out.extend(decoder.finish(bytes.is_empty())?);
        Ok(out)
    }

    #[test]
    fn gzip_comes_out_whatever_its_pieces() {
        let text = b"data: {\"a\":1}\n\n".repeat(100);
        for piece in [1, 7, 1000] {
            assert_eq!(decode(&gzip(&text), piece, 10_000).unwrap(), text);
            let two = [gzip(&text), gzip(b"more")].concat();
            assert_eq!(decode(&two, piece, 10_000).unwrap(), [&text[..], b"more"].concat());
        }
        assert_eq!(decode(&[], 1, 10), Ok(Vec::new()));
    }

    #[test]
    fn a_bomb_is_cut_at_the_bound() {
        let bomb = gzip(&vec![0; 8 << 20]);
        assert!(bomb.len() < 16 * 1024);
        assert_eq!(decode(&bomb, 16 * 1024, 64 * 1024), Err(DecodeError::TooLong));
        assert_eq!(decode(&bomb, 1, 64 * 1024), Err(DecodeError::TooLong));
    }

    #[test]
    fn what_is_no_gzip_or_ends_early_is_refused() {
        let good = gzip(b"text that is long enough to be cut");
        assert_eq!(decode(&good[..good.len() - 1], 3, 100), Err(DecodeError::Malformed));
        assert_eq!(decode(&good[..5], 3, 100), Err(DecodeError::Malformed));
        assert_eq!(decode(b"plain text", 3, 100), Err(DecodeError::Malformed));
        let mut wrong = good.clone();
        let at = wrong.len() - 5;
        wrong[at] ^= 1;
        assert_eq!(decode(&wrong, 1000, 100), Err(DecodeError::Malformed));
        assert_eq!(
            decode(&[&good[..], b"trailing"].concat(), 1000, 100),
            Err(DecodeError::Malformed)
        );
    }

    #[test]
    fn other_codings_are_known_as_such() {
        assert!(
            ContentDecoder::for_coding(None, 1).is_some()
                && ContentDecoder::for_coding(Some(b"Identity"), 1).is_some()
        );
        for other in ["br", "deflate", "zstd", "gzip, gzip", ""] {
            assert!(ContentDecoder::for_coding(Some(other.as_bytes()), 1).is_none(), "{other}");
        }
    }
}
