//! The memory of a key switch.

use std::sync::Arc;

use confide_rlwe::{NttPoly, Ring};

/// Memory of one key switch, used again by the next: it is several times a cache's size, and fresh
/// pages from the operating system would cost more than the arithmetic.
#[derive(Default)]
pub(super) struct SwitchMemory {
    pub(super) turned: Vec<u64>,
    pub(super) digit: Vec<u64>,
    pub(super) lifted: Vec<u64>,
    pub(super) sums: Vec<(NttPoly, NttPoly)>,
}

impl SwitchMemory {
    pub(super) fn new(n: usize) -> SwitchMemory {
        let empty = || vec![0; n];
        SwitchMemory { turned: empty(), digit: empty(), lifted: empty(), sums: Vec::new() }
    }

    /// Takes two zeroes of a ring.
    pub(super) fn sums_of(&mut self, ring: &Arc<Ring>) -> (NttPoly, NttPoly) {
        let known = self.sums.iter().position(|(b, _)| b.ring().is_same(ring));
        let Some(known) = known else { return (NttPoly::zero(ring), NttPoly::zero(ring)) };
        let (mut b, mut a) = self.sums.swap_remove(known);
        b.limbs_mut().chain(a.limbs_mut()).for_each(|(_, limb)| limb.fill(0));
        (b, a)
    }
}
