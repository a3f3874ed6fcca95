//! The lengths of the parts of a proof: the circuit fixes them, so a proof does not contain them.
//!
//! The back end's own decoding takes lengths and optional parts from the bytes, and its check
//! trusts them: a proof may bring a commitment of a part that the circuit does not have, which is
//! then used without having been hashed. Here the circuit determines the lengths and the checker
//! the public values, so no proof can state others.

use crate::error::CircuitError;

/// The number of columns of a commitment to the witness, and of one to the trace of the check.
const COLUMNS: usize = 2048;
const TRACE_COLUMNS: usize = 16;

/// The length of a compressed point of the curve, in bytes.
const POINT_BYTES: usize = 33;
const SCALAR_BYTES: usize = 32;

/// The number of public values of the trace: tau at r_x, the public part at r_y, the matrices at
/// both.
const TRACE_PUBLIC: usize = 3;

/// The sizes of a padded circuit that determine the lengths of its proofs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) constraints: usize,
    pub(crate) precommitted: usize,
    pub(crate) rest: usize,
}

/// A piece of the back end's encoding.
enum Piece {
    /// Bytes that the layout determines: lengths, whether there is a part, public values.
    Fixed(Vec<u8>),
    /// A number of bytes of the proof.
    Proof(usize),
}

/// The pieces of a proof, in order.
pub(crate) struct Layout(Vec<Piece>);

impl Layout {
    /// The layout of proofs of a circuit for these public values, each already encoded.
    pub(crate) fn new(sizes: &Sizes, public: &[[u8; SCALAR_BYTES]]) -> Self {
        let mut layout = Self(Vec::new());
        layout.instance(sizes, public);
        let rounds_x = sizes.constraints.ilog2() as usize;
        let rounds_y = (sizes.precommitted + sizes.rest).ilog2() as usize + 1;
        layout.trace(rounds_x, rounds_y);
        layout.folding_and_opening(rounds_x, rounds_y);
        layout
    }

    /// The length of a proof, in bytes.
    pub(crate) fn proof_bytes(&self) -> usize {
        let bytes = |piece: &Piece| match piece {
            Piece::Fixed(_) => 0,
            Piece::Proof(bytes) => *bytes,
        };
        self.0.iter().map(bytes).sum()
    }

    /// Restores the back end's encoding from a proof.
    pub(crate) fn restore(&self, mut proof: &[u8]) -> Result<Vec<u8>, CircuitError> {
        let (wanted, got) = (self.proof_bytes(), proof.len());
        if wanted != got {
            return Err(CircuitError::Size { wanted, got });
        }
        let mut encoding = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Fixed(bytes) => encoding.extend_from_slice(bytes),
                Piece::Proof(bytes) => {
                    let (taken, left) = proof.split_at(*bytes);
                    encoding.extend_from_slice(taken);
                    proof = left;
                }
            }
        }
        Ok(encoding)
    }

    /// Strips the back end's encoding to a proof; `None` if it is not laid out as the circuit
    /// determines.
    pub(crate) fn strip(&self, mut encoding: &[u8]) -> Option<Vec<u8>> {
        let mut proof = Vec::with_capacity(self.proof_bytes());
        for piece in &self.0 {
            match piece {
                Piece::Fixed(bytes) => encoding = encoding.strip_prefix(bytes.as_slice())?,
                Piece::Proof(bytes) => {
                    let (taken, left) = encoding.split_at_checked(*bytes)?;
                    proof.extend_from_slice(taken);
                    encoding = left;
                }
            }
        }
        encoding.is_empty().then_some(proof)
    }

    /// The statement's instance: commitments to the witness by rows, and the public values.
    fn instance(&mut self, sizes: &Sizes, public: &[[u8; SCALAR_BYTES]]) {
        const ABSENT: u8 = 0;
        const PRESENT: u8 = 1;
        self.push_fixed(&[ABSENT, PRESENT]);
        self.points(sizes.precommitted.div_ceil(COLUMNS));
        self.points(sizes.rest.div_ceil(COLUMNS));
        self.length(public.len());
        self.push_fixed(&public.concat());
        self.length(0);
    }

    /// The trace of the check, committed to round by round, each in one row.
    fn trace(&mut self, rounds_x: usize, rounds_y: usize) {
        let rounds = trace_rounds(rounds_x, rounds_y);
        self.length(rounds);
        for _ in 0..rounds {
            self.points(1);
        }
        self.scalars(TRACE_PUBLIC);
        self.length(rounds);
        for round in 0..rounds {
            // The last two rounds have no challenge after them.
            self.scalars(usize::from(round + 2 < rounds));
        }
    }

    fn folding_and_opening(&mut self, rounds_x: usize, rounds_y: usize) {
        let rounds = trace_rounds(rounds_x, rounds_y);
        let constraints = trace_constraints(rounds_x, rounds_y).next_power_of_two();
        let error_rows = constraints.div_ceil(TRACE_COLUMNS);
        // The random instance: witness, error, public values, relaxation.
        self.points(rounds);
        self.points(error_rows);
        self.scalars(rounds - 2 + TRACE_PUBLIC);
        self.proof(SCALAR_BYTES);
        // The cross term.
        self.points(error_rows);
        // Two sum-checks of degrees 3 and 2 without their linear terms; claims; two openings.
        self.polynomials(constraints.ilog2() as usize, 3);
        self.proof(3 * SCALAR_BYTES);
        let witness = (rounds * TRACE_COLUMNS).next_power_of_two();
        self.polynomials(witness.ilog2() as usize + 1, 2);
        for _ in 0..2 {
            self.scalars(TRACE_COLUMNS);
            self.proof(SCALAR_BYTES);
        }
        // The opening of the witness: two points, a row, two blinds.
        self.proof(2 * POINT_BYTES);
        self.scalars(COLUMNS);
        self.proof(2 * SCALAR_BYTES);
    }

    fn push_fixed(&mut self, bytes: &[u8]) {
        self.0.push(Piece::Fixed(bytes.to_vec()));
    }

    fn proof(&mut self, bytes: usize) {
        self.0.push(Piece::Proof(bytes));
    }

    fn length(&mut self, length: usize) {
        self.push_fixed(&(length as u64).to_le_bytes());
    }

    fn points(&mut self, count: usize) {
        self.length(count);
        self.proof(count * POINT_BYTES);
    }

    fn scalars(&mut self, count: usize) {
        self.length(count);
        self.proof(count * SCALAR_BYTES);
    }

    fn polynomials(&mut self, count: usize, coefficients: usize) {
        self.length(count);
        for _ in 0..count {
            self.scalars(coefficients);
        }
    }
}

/// The number of rounds of the trace: two sum-checks, the steps between and after them, and the
/// round of the opened value.
fn trace_rounds(rounds_x: usize, rounds_y: usize) -> usize {
    rounds_x + rounds_y + 3
}

/// The number of constraints of the trace (spartan2's `SpartanVerifierCircuit`): the first round of
/// each sum-check, its others, the end of each, and the row of the opened value.
fn trace_constraints(rounds_x: usize, rounds_y: usize) -> usize {
    let outer = 2 + 4 * (rounds_x - 1) + 5;
    let inner = 4 + 3 * (rounds_y - 1) + 6;
    outer + inner + TRACE_COLUMNS
}
