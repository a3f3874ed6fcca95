//! The lengths of the parts of a proof, which the circuit determines, so that proofs omit them.
//!
//! The back end's own decoder takes lengths and optional parts from the bytes, and its check trusts
//! them: a proof could contain a commitment to a part that the circuit does not have, which would
//! be used without having been hashed. Here the circuit determines the lengths and the checker the
//! public values, so that a proof cannot contain others.

use crate::error::CircuitError;

/// The number of columns in a commitment to the witness, and in one to the trace of the check.
const COLUMNS: usize = 2048;
const TRACE_COLUMNS: usize = 16;

/// The length of a compressed point of the curve, in bytes.
const POINT_BYTES: usize = 33;
const SCALAR_BYTES: usize = 32;

/// The number of public values of the trace: tau at r_x, the public part at r_y, and the matrices
/// at both points.
const TRACE_PUBLIC: usize = 3;

/// The sizes of a padded circuit that determine the lengths of its proofs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitSizes {
    pub(crate) constraints: usize,
    pub(crate) precommitted: usize,
    pub(crate) rest: usize,
}

/// A piece of the back end's encoding.
enum LayoutPiece {
    /// Bytes that the layout determines: lengths, markers of optional parts, public values.
    Fixed(Vec<u8>),
    /// This many bytes from the proof.
    Proof(usize),
}

/// The pieces of a proof, in order.
pub(crate) struct ProofLayout(Vec<LayoutPiece>);

impl ProofLayout {
    /// The layout of proofs of a circuit for the given encoded public values.
    pub(crate) fn new(sizes: &CircuitSizes, public: &[[u8; SCALAR_BYTES]]) -> Self {
        let mut layout = Self(Vec::new());
        layout.push_instance(sizes, public);
        let rounds_x = sizes.constraints.ilog2() as usize;
        let rounds_y = (sizes.precommitted + sizes.rest).ilog2() as usize + 1;
        layout.push_trace(rounds_x, rounds_y);
        layout.push_folding_and_opening(rounds_x, rounds_y);
        layout
    }

    /// The length of a proof, in bytes.
    pub(crate) fn proof_bytes(&self) -> usize {
        let bytes = |piece: &LayoutPiece| match piece {
            LayoutPiece::Fixed(_) => 0,
            LayoutPiece::Proof(bytes) => *bytes,
        };
        self.0.iter().map(bytes).sum()
    }

    /// Restores the back end's encoding from a proof.
    pub(crate) fn restore(&self, mut proof: &[u8]) -> Result<Vec<u8>, CircuitError> {
        let (wanted, got) = (self.proof_bytes(), proof.len());
        if wanted != got {
            return Err(CircuitError::ProofLength { wanted, got });
        }
        let mut encoding = Vec::new();
        for piece in &self.0 {
            match piece {
                LayoutPiece::Fixed(bytes) => encoding.extend_from_slice(bytes),
                LayoutPiece::Proof(bytes) => {
                    let (taken, left) = proof.split_at(*bytes);
                    encoding.extend_from_slice(taken);
                    proof = left;
                }
            }
        }
        Ok(encoding)
    }

    /// Strips the fixed parts from the back end's encoding; `None` if it does not have this layout.
    pub(crate) fn strip(&self, mut encoding: &[u8]) -> Option<Vec<u8>> {
        let mut proof = Vec::with_capacity(self.proof_bytes());
        for piece in &self.0 {
            match piece {
                LayoutPiece::Fixed(bytes) => encoding = encoding.strip_prefix(bytes.as_slice())?,
                LayoutPiece::Proof(bytes) => {
                    let (taken, left) = encoding.split_at_checked(*bytes)?;
                    proof.extend_from_slice(taken);
                    encoding = left;
                }
            }
        }
        encoding.is_empty().then_some(proof)
    }

    /// Adds the statement's instance: commitments to the rows of the witness, and the public
    /// values.
    fn push_instance(&mut self, sizes: &CircuitSizes, public: &[[u8; SCALAR_BYTES]]) {
        const ABSENT: u8 = 0;
        const PRESENT: u8 = 1;
        self.push_fixed(&[ABSENT, PRESENT]);
        self.push_points(sizes.precommitted.div_ceil(COLUMNS));
        self.push_points(sizes.rest.div_ceil(COLUMNS));
        self.push_length(public.len());
        self.push_fixed(&public.concat());
        self.push_length(0);
    }

    /// Adds the trace of the check, with one row and one commitment for each round.
    fn push_trace(&mut self, rounds_x: usize, rounds_y: usize) {
        let rounds = trace_rounds(rounds_x, rounds_y);
        self.push_length(rounds);
        for _ in 0..rounds {
            self.push_points(1);
        }
        self.push_scalars(TRACE_PUBLIC);
        self.push_length(rounds);
        for round in 0..rounds {
            // The last two rounds have no challenge after them.
            self.push_scalars(usize::from(round + 2 < rounds));
        }
    }

    fn push_folding_and_opening(&mut self, rounds_x: usize, rounds_y: usize) {
        let rounds = trace_rounds(rounds_x, rounds_y);
        let constraints = trace_constraints(rounds_x, rounds_y).next_power_of_two();
        let error_rows = constraints.div_ceil(TRACE_COLUMNS);
        // The random instance: witness, error, public values, relaxation.
        self.push_points(rounds);
        self.push_points(error_rows);
        self.push_scalars(rounds - 2 + TRACE_PUBLIC);
        self.push_variable(SCALAR_BYTES);
        // The cross term.
        self.push_points(error_rows);
        // Two sum-checks of degrees 3 and 2 without their linear terms; claims; two openings.
        self.push_polynomials(constraints.ilog2() as usize, 3);
        self.push_variable(3 * SCALAR_BYTES);
        let witness = (rounds * TRACE_COLUMNS).next_power_of_two();
        self.push_polynomials(witness.ilog2() as usize + 1, 2);
        for _ in 0..2 {
            self.push_scalars(TRACE_COLUMNS);
            self.push_variable(SCALAR_BYTES);
        }
        // The opening of the witness: two points, a row, two blinds.
        self.push_variable(2 * POINT_BYTES);
        self.push_scalars(COLUMNS);
        self.push_variable(2 * SCALAR_BYTES);
    }

    fn push_fixed(&mut self, bytes: &[u8]) {
        self.0.push(LayoutPiece::Fixed(bytes.to_vec()));
    }

    fn push_variable(&mut self, bytes: usize) {
        self.0.push(LayoutPiece::Proof(bytes));
    }

    fn push_length(&mut self, length: usize) {
        self.push_fixed(&(length as u64).to_le_bytes());
    }

    fn push_points(&mut self, count: usize) {
        self.push_length(count);
        self.push_variable(count * POINT_BYTES);
    }

    fn push_scalars(&mut self, count: usize) {
        self.push_length(count);
        self.push_variable(count * SCALAR_BYTES);
    }

    fn push_polynomials(&mut self, count: usize, coefficients: usize) {
        self.push_length(count);
        for _ in 0..count {
            self.push_scalars(coefficients);
        }
    }
}

/// The number of rounds in the trace: two sum-checks, the steps between and after them, and the
/// round of the opened value.
fn trace_rounds(rounds_x: usize, rounds_y: usize) -> usize {
    rounds_x + rounds_y + 3
}

/// The number of constraints of the trace (spartan2's `SpartanVerifierCircuit`): those of the first
/// round, of the other rounds and of the end of each sum-check, and the row of the opened value.
fn trace_constraints(rounds_x: usize, rounds_y: usize) -> usize {
    let outer = 2 + 4 * (rounds_x - 1) + 5;
    let inner = 4 + 3 * (rounds_y - 1) + 6;
    outer + inner + TRACE_COLUMNS
}
