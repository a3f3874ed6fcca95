//! The buffers of a key switch.

use std::sync::Arc;

use confide_rlwe::{NttPoly, Ring};

/// The buffers of one key switch, which the next one reuses. They are several times larger than a
/// cache, and fresh pages from the operating system would cost more than the arithmetic.
#[derive(Default)]
pub(super) struct KeySwitchBuffers {
    pub(super) turned: Vec<u64>,
    pub(super) digit: Vec<u64>,
    pub(super) lifted: Vec<u64>,
    pub(super) sums: Vec<(NttPoly, NttPoly)>,
}

impl KeySwitchBuffers {
    pub(super) fn new(n: usize) -> KeySwitchBuffers {
        let empty = || vec![0; n];
        KeySwitchBuffers { turned: empty(), digit: empty(), lifted: empty(), sums: Vec::new() }
    }

    /// Takes two zero polynomials of a ring, from `sums` if it has a pair of that ring.
    pub(super) fn take_zero_pair(&mut self, ring: &Arc<Ring>) -> (NttPoly, NttPoly) {
        let known = self.sums.iter().position(|(b, _)| b.ring().is_same(ring));
        let Some(known) = known else { return (NttPoly::zero(ring), NttPoly::zero(ring)) };
        let (mut b, mut a) = self.sums.swap_remove(known);
        b.limbs_mut().chain(a.limbs_mut()).for_each(|(_, limb)| limb.fill(0));
        (b, a)
    }
}
