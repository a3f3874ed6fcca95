//! Integers modulo 2^k, packed into k bits each, least significant bit first.

/// The number of bytes of `count` packed values of `bits` bits.
pub fn packed_bytes(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Appends `values`, each below 2^`bits`, to `out`. Unused bits of the last byte are 0.
///
/// `bits` is 1 to 64.
pub fn pack(values: &[u64], bits: u32, out: &mut Vec<u8>) {
    debug_assert!((1..=64).contains(&bits));
    out.reserve(packed_bytes(values.len(), bits) + 8);
    let mask = u128::from(u64::MAX >> (64 - bits));
    let (mut held, mut held_bits) = (0u128, 0u32);
    for value in values {
        held |= (u128::from(*value) & mask) << held_bits;
        held_bits += bits;
        if held_bits >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            held_bits -= 64;
        }
    }
    let rest = held_bits.div_ceil(8) as usize;
    out.extend_from_slice(&(held as u64).to_le_bytes()[..rest]);
}

/// Returns whether `bytes` are `count` packed values of `bits` bits: whether they have this length, and
/// no bit after the last value is set.
pub fn is_packed(bytes: &[u8], bits: u32, count: usize) -> bool {
    if !(1..=64).contains(&bits) || bytes.len() != packed_bytes(count, bits) {
        return false;
    }
    let bits_of_last_byte = count * bits as usize % 8;
    bits_of_last_byte == 0 || bytes.last().is_none_or(|last| last >> bits_of_last_byte == 0)
}

/// Unpacks `count` values of `bits` bits from `bytes`; `None` if [`is_packed`] refuses them.
pub fn unpack(bytes: &[u8], bits: u32, count: usize) -> Option<Vec<u64>> {
    if !is_packed(bytes, bits, count) {
        return None;
    }
    let mask = u64::MAX >> (64 - bits);
    let mut values = Vec::with_capacity(count);
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let (mut held, mut held_bits) = (0u128, 0u32);
    for _ in 0..count {
        if held_bits < bits {
            held |= u128::from(words.next()?) << held_bits;
            held_bits += 64;
        }
        values.push(held as u64 & mask);
        held >>= bits;
        held_bits -= bits;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_width_come_back() {
        for bits in 1..=64 {
            let mask = u64::MAX >> (64 - bits);
            for count in [0, 1, 2, 7, 8, 9, 63, 100] {
                let values: Vec<u64> = (0..count as u64)
                    .map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask)
                    .collect();
                let mut bytes = Vec::new();
                pack(&values, bits, &mut bytes);
                assert_eq!(bytes.len(), packed_bytes(count, bits), "{count} of {bits}");
                assert_eq!(unpack(&bytes, bits, count), Some(values), "{count} of {bits}");
            }
        }
    }

    #[test]
    fn another_length_and_stray_bits_are_refused() {
        let mut bytes = Vec::new();
        pack(&[1, 2, 3], 33, &mut bytes);
        assert!(unpack(&bytes, 33, 3).is_some());
        assert_eq!(unpack(&bytes[1..], 33, 3), None);
        assert_eq!(unpack(&bytes, 33, 4), None);
        *bytes.last_mut().unwrap() |= 0x80;
        assert_eq!(unpack(&bytes, 33, 3), None);
        assert_eq!(unpack(&[], 0, 0), None);
        assert_eq!(unpack(&[], 65, 0), None);
    }
}
