//! Pseudorandom numbers from a seed.

/// A small random generator whose output for a seed never changes.
///
/// xoshiro256++ (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2021).
/// SplitMix64 fills its state, as its authors advise. It must not be used for secrets.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom([u64; 4]);

impl SeededRandom {
    /// The random stream of a seed for one purpose; streams of different purposes are independent.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let folded = purpose.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut mix = seed ^ folded;
        Self(std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            split_mix(mix)
        }))
    }

    pub(crate) fn next_bits(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Returns a uniform number in [0, 1).
    pub(crate) fn next_unit(&mut self) -> f64 {
        (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a uniform integer from 0 to `bound`, exclusive. The bias is below 2^-32 for the
    /// bounds that are used here.
    pub(crate) fn uniform_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_bits()) * bound as u128) >> 64) as usize
    }

    /// Returns a standard normal number (Box, Muller 1958).
    pub(crate) fn next_normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.next_unit()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.next_unit()).cos()
    }
}

/// The output of SplitMix64 for a state (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014).
pub(crate) fn split_mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_stream_and_purposes_differ() {
        let draw = |seed, purpose| {
            let mut random = SeededRandom::new(seed, purpose);
            [random.next_bits(), random.next_bits()]
        };
        assert_eq!(draw(7, "a"), draw(7, "a"));
        assert_ne!(draw(7, "a"), draw(8, "a"));
        assert_ne!(draw(7, "a"), draw(7, "b"));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut random = SeededRandom::new(1, "test");
        let draws: Vec<f64> = (0..20_000).map(|_| random.next_normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05);
    }
}
