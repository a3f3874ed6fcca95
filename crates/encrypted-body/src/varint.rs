//! Variable-length integers (RFC 9000 section 16), in which chunks and binary messages state lengths.

/// The largest number of bytes of an integer.
pub(crate) const VARINT_BYTES_MAX: usize = 8;

/// The number of bytes of an integer that begins with this byte.
pub(crate) fn varint_bytes(first: u8) -> usize {
    1 << (first >> 6)
}

/// The value of all bytes of an integer.
pub(crate) fn decode_varint(bytes: &[u8]) -> u64 {
    let (first, rest) = bytes.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
    rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte))
}

/// Reads an integer at the front of `bytes`, and the number of its bytes; `None` if some are missing.
pub(crate) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = varint_bytes(*bytes.first()?);
    let encoded = bytes.get(..length)?;
    Some((decode_varint(encoded), length))
}

/// Appends an integer in its shortest form. Lengths of things in memory are below 2^62.
pub(crate) fn append_varint(value: usize, output: &mut Vec<u8>) {
    let value = value as u64;
    match value {
        0..0x40 => output.push(value as u8),
        0x40..0x4000 => output.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => output.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => output.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_hold() {
        // Appendix A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read_varint(bytes), Some((value, bytes.len())));
            assert_eq!(read_varint(&bytes[..bytes.len() - 1]), None);
            let mut encoded = Vec::new();
            append_varint(value as usize, &mut encoded);
            assert_eq!(encoded, bytes);
        }
        assert_eq!(read_varint(&[0x40, 0x25]), Some((37, 2)), "a longer form of 37");
    }
}
