//! Hexadecimal for what is long, as revocation lists are: a table and no branch per digit.

/// Decodes all of `text` into all of `bytes`; false if the lengths do not match or a digit is
/// none, and then `bytes` holds nothing of use. Upper and lower case mean the same.
pub(crate) fn decode(text: &[u8], bytes: &mut [u8]) -> bool {
    let (pairs, odd) = text.as_chunks::<2>();
    if !odd.is_empty() || pairs.len() != bytes.len() {
        return false;
    }
    // A character that is not a digit has a value with its upper half set, which is tested once after the loop.
    let mut seen = 0;
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (VALUES[usize::from(*high)], VALUES[usize::from(*low)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    seen < 16
}

/// The value of each digit; [`NO_DIGIT`] for all that is none.
static VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

const NO_DIGIT: u8 = 0xf0;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn every_pair_of_bytes_is_read_as_the_plain_decoder_reads_it() {
        for high in 0..=255 {
            for low in 0..=255 {
                let (mut ours, mut plain) = ([0; 1], [0; 1]);
                let good = decode(&[high, low], &mut ours);
                assert_eq!(good, hex::decode_to_slice([high, low], &mut plain).is_ok());
                assert!(!good || ours == plain, "{high} {low}");
            }
        }
    }

    #[test]
    fn a_false_digit_anywhere_and_a_wrong_length_are_refused() {
        for at in 0..64 {
            let mut text = vec![b'7'; 64];
            assert!(decode(&text, &mut [0; 32]));
            text[at] = b'g';
            assert!(!decode(&text, &mut [0; 32]), "at {at}");
        }
        for (length, room) in [(63, 31), (63, 32), (64, 31), (64, 33), (1, 0)] {
            assert!(!decode(&vec![b'7'; length], &mut vec![0; room]), "{length} in {room}");
        }
    }
}
