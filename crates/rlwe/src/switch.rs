//! Answers that are switched down to the first prime, with all messages or those at some positions.

use std::fmt;

use crate::{ciphertext::Ciphertext, error::RlweError, poly::Poly};

/// An answer that is switched down to the first limb, in coefficient form: all of c1, and c0 at
/// every position or at selected positions.
#[derive(Clone, PartialEq, Eq)]
pub struct SmallCiphertext {
    pub(crate) c0: Vec<u64>,
    pub(crate) c1: Vec<u64>,
    /// The positions of c0's values, ascending; `None` means all positions.
    pub(crate) positions: Option<Vec<u16>>,
}

impl Ciphertext {
    /// Divides by all primes but the first, with rounding: the messages stay the same, and only one
    /// limb of each polynomial is left.
    pub fn switch_down(self) -> SmallCiphertext {
        let [c0, c1] = [self.c0, self.c1].map(|part| {
            let mut poly: Poly = part.into_poly();
            while poly.ring().lower_ring().is_some() {
                poly = poly.divide_by_last_prime();
            }
            poly.values().to_vec()
        });
        SmallCiphertext { c0, c1, positions: None }
    }
}

impl SmallCiphertext {
    /// Keeps only the coefficients of c0 at `positions`, which are ascending and below N.
    ///
    /// # Errors
    /// If the positions are not ascending or not below N, or if positions were selected before.
    pub fn select_positions(mut self, positions: &[usize]) -> Result<SmallCiphertext, RlweError> {
        let n = self.c1.len();
        if self.positions.is_some() {
            let got = self.c0.len();
            return Err(RlweError::Length { what: "answer to select from", wanted: n, got });
        }
        let ascending = positions.windows(2).all(|pair| pair[0] < pair[1]);
        let last = positions.last().copied().unwrap_or(0);
        if !ascending || last >= n || last > usize::from(u16::MAX) {
            return Err(RlweError::Limit { what: "ascending position", limit: n - 1, got: last });
        }
        if positions.len() < n {
            self.c0 = positions.iter().map(|&position| self.c0[position]).collect();
            self.positions = Some(positions.iter().map(|&position| position as u16).collect());
        }
        Ok(self)
    }

    /// The number of messages that decryption returns.
    pub fn len(&self) -> usize {
        self.c0.len()
    }

    /// Returns whether no position was selected.
    pub fn is_empty(&self) -> bool {
        self.c0.is_empty()
    }

    /// The positions of the messages.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        let all = self.positions.is_none();
        let some = self.positions.as_deref().unwrap_or_default();
        let whole = if all { 0..self.c0.len() } else { 0..0 };
        whole.chain(some.iter().map(|&position| usize::from(position)))
    }
}

impl fmt::Debug for SmallCiphertext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SmallCiphertext({} of {})", self.c0.len(), self.c1.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, ParameterSet, Rng, SecretKey};

    #[test]
    fn a_selection_decrypts_to_the_messages_at_its_positions() {
        let set = ParameterSet::dangerous_from_name("toy-256-q100-flood40").unwrap();
        let context = Context::new(&set).unwrap();
        let mut rng = Rng::from_seed([51; 32]);
        let key = SecretKey::generate(&context, &mut rng);
        let messages: Vec<u64> = (0..256).map(|i| 1000 + i).collect();
        let answer = key.encrypt(&messages, &mut rng).unwrap().expand().switch_down();
        let selected = answer.clone().select_positions(&[0, 7, 255]).unwrap();
        assert_eq!(key.decrypt(&selected).unwrap(), [1000, 1007, 1255]);
        assert_eq!((selected.len(), selected.is_empty()), (3, false));
        assert!(answer.clone().select_positions(&[]).unwrap().is_empty());
        for wrong in [&[256][..], &[3, 3], &[5, 4]] {
            let refused = answer.clone().select_positions(wrong);
            assert!(matches!(refused, Err(RlweError::Limit { .. })), "{wrong:?}");
        }
        assert!(matches!(selected.select_positions(&[0]), Err(RlweError::Length { .. })));
        let every: Vec<usize> = (0..256).collect();
        assert_eq!(answer.clone().select_positions(&every).unwrap(), answer);
    }
}
