//! The few CBOR items this crate writes, in the deterministic encoding of RFC 8949 section 4.2.1.
//!
//! Writing to a vector cannot fail, so no `Result` reaches the encoders.

use alloc::vec::Vec;

/// Appends items with the shortest head; lengths are always definite.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn uint(&mut self, value: u64) -> &mut Self {
        self.head(0, value)
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.head(2, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.head(3, value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
        self
    }

    pub(crate) fn array(&mut self, len: u64) -> &mut Self {
        self.head(4, len)
    }

    pub(crate) fn map(&mut self, len: u64) -> &mut Self {
        self.head(5, len)
    }

    pub(crate) fn tag(&mut self, tag: u64) -> &mut Self {
        self.head(6, tag)
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.0.push(0xf6);
        self
    }

    /// The initial byte and the argument in its shortest form (RFC 8949 section 3).
    fn head(&mut self, major: u8, value: u64) -> &mut Self {
        let major = major << 5;
        let wide = value.to_be_bytes();
        match value {
            0..=23 => self.0.push(major | wide[7]),
            24..=0xff => self.0.extend_from_slice(&[major | 24, wide[7]]),
            0x100..=0xffff => {
                self.0.push(major | 25);
                self.0.extend_from_slice(&wide[6..]);
            }
            0x1_0000..=0xffff_ffff => {
                self.0.push(major | 26);
                self.0.extend_from_slice(&wide[4..]);
            }
            _ => {
                self.0.push(major | 27);
                self.0.extend_from_slice(&wide);
            }
        }
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
