//! The offline step: the host's part of one batch of masks.

use std::sync::Arc;

use confide_rlwe::{Context, PublicKey, Rng, ScalarProducts, SeededCiphertext};

use super::adapter::Hosted;
use crate::{
    mask::{MaskStream, TILE},
    protocol::Refusal,
};

/// Sums over the ciphertexts of a batch, one for each row.
pub(crate) struct Sums {
    context: Arc<Context>,
    products: ScalarProducts<'static>,
    public_key: Arc<PublicKey>,
    shares: MaskStream,
    rows: usize,
    bits: u32,
}

impl Sums {
    pub(crate) fn new(
        context: &Arc<Context>,
        adapter: &Hosted,
        group: usize,
        public_key: Arc<PublicKey>,
        shares: MaskStream,
    ) -> Self {
        let group = &adapter.groups()[group];
        let products = ScalarProducts::new(context, (*group.scalars).clone());
        let (rows, bits) = (group.rows(), group.weights.terms.bits);
        Self { context: context.clone(), products, public_key, shares, rows, bits }
    }

    /// Takes a block: its count (u16), then as many ciphertexts. Gives the count.
    pub(crate) fn push(&mut self, block: &[u8]) -> Result<usize, Refusal> {
        let (count, ciphertexts) = block.split_first_chunk().ok_or(Refusal::Malformed)?;
        let count = usize::from(u16::from_le_bytes(*count));
        let length = SeededCiphertext::wire_bytes(&self.context);
        if ciphertexts.len() != count * length {
            return Err(Refusal::Malformed);
        }
        for bytes in ciphertexts.chunks_exact(length) {
            let ciphertext = SeededCiphertext::from_bytes(&self.context, bytes)
                .map_err(|_| Refusal::Malformed)?;
            self.products.push(&ciphertext).map_err(|_| Refusal::Malformed)?;
        }
        Ok(count)
    }

    /// Takes the shares away from the sums and hides all else: under a fresh encryption by this
    /// host itself, flooded. Gives the bytes of each row's answer.
    pub(crate) fn finish(self) -> Result<Vec<Vec<u8>>, Refusal> {
        let sums = self.products.finish().map_err(|_| Refusal::Malformed)?;
        let mut rng = Rng::from_os().map_err(|_| Refusal::Internal)?;
        let tokens = 0..self.context.n() as u32;
        let mut answers = Vec::with_capacity(self.rows);
        let mut sums = sums.into_iter();
        for tile in 0..self.rows.div_ceil(TILE) {
            let shares = self.shares.columns(tile, tokens.clone(), self.bits);
            for (mut share, mut sum) in shares.into_iter().zip(sums.by_ref().take(TILE)) {
                share.iter_mut().for_each(|share| *share = share.wrapping_neg());
                let hidden = self
                    .public_key
                    .encrypt(&self.context, &share, &mut rng)
                    .map_err(|_| Refusal::Internal)?;
                sum.add_assign(&hidden);
                answers.push(sum.switch_down().to_bytes(&self.context));
            }
        }
        Ok(answers)
    }
}
