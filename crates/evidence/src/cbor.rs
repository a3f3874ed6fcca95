//! The few CBOR items this crate writes, in the deterministic encoding of RFC 8949 section 4.2.1.
//!
//! Writing to a vector cannot fail, so no `Result` reaches the encoders.

use alloc::vec::Vec;

use minicbor::{Encoder, data::Tag};

/// Appends items with the shortest head; lengths are always definite.
pub(crate) struct Writer(Encoder<Vec<u8>>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Encoder::new(Vec::new()))
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_writer()
    }

    pub(crate) fn uint(&mut self, value: u64) -> &mut Self {
        let _ = self.0.u64(value);
        self
    }

    pub(crate) fn int(&mut self, value: i64) -> &mut Self {
        let _ = self.0.i64(value);
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let _ = self.0.bytes(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        let _ = self.0.str(value);
        self
    }

    pub(crate) fn array(&mut self, len: u64) -> &mut Self {
        let _ = self.0.array(len);
        self
    }

    pub(crate) fn map(&mut self, len: u64) -> &mut Self {
        let _ = self.0.map(len);
        self
    }

    pub(crate) fn tag(&mut self, tag: u64) -> &mut Self {
        let _ = self.0.tag(Tag::new(tag));
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        let _ = self.0.null();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_take_the_shortest_form_of_rfc_8949_appendix_a() {
        let cases: [(u64, &[u8]); 9] = [
            (0, &[0x00]),
            (23, &[0x17]),
            (24, &[0x18, 0x18]),
            (100, &[0x18, 0x64]),
            (1000, &[0x19, 0x03, 0xe8]),
            (65535, &[0x19, 0xff, 0xff]),
            (1_000_000, &[0x1a, 0x00, 0x0f, 0x42, 0x40]),
            (1_000_000_000_000, &[0x1b, 0, 0, 0, 0xe8, 0xd4, 0xa5, 0x10, 0]),
            (u64::MAX, &[0x1b, 255, 255, 255, 255, 255, 255, 255, 255]),
        ];
        for (value, wanted) in cases {
            let mut writer = Writer::new();
            writer.uint(value);
            assert_eq!(writer.finish(), wanted);
        }
    }
}
