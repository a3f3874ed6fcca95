//! Numbers drawn from a case's number: SplitMix64 (Steele, Lea and Flood, 2014).

pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(case: u64) -> Self {
        let mut draw = Self(case.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5eed_0fc0_f1de_0000);
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit - 1`; 0 for a limit of 0.
    pub(crate) fn number_below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.number_below(one_in) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.number_below(all.len())]
    }

    /// A byte that changes another one.
    pub(crate) fn mask(&mut self) -> u8 {
        match self.number_below(3) {
            0 => 1 << self.number_below(8),
            1 => 0xff,
            _ => self.number_below(255) as u8 + 1,
        }
    }
}
