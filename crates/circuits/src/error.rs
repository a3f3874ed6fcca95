//! What can be wrong with a statement, its witness or a proof.

/// Why a statement was not proved, or a proof not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CircuitError {
    /// More bytes than there is a circuit for.
    #[error("{subject} is {got} bytes, wanted {least} to {most}")]
    Length {
        /// What they are.
        subject: &'static str,
        /// Fewest that are taken.
        least: usize,
        /// Most that are taken.
        most: usize,
        /// What came.
        got: usize,
    },
    /// No circuit for a tree of this depth.
    #[error("depth of the tree is {got}, wanted {} to {}", crate::DEPTH_LEAST, crate::DEPTH_MOST)]
    Depth {
        /// What came.
        got: u8,
    },
    /// The hidden part does not make the statement true, so there is nothing to prove.
    #[error("{what}")]
    Untrue {
        /// What does not hold.
        what: &'static str,
    },
    /// Not a proof of this crate.
    #[error("proof does not begin as a circuit proof does")]
    Magic,
    /// A header that no proof has.
    #[error("{field} of the proof is {got}, which names nothing known")]
    Header {
        /// Which part of it.
        field: &'static str,
        /// Its value.
        got: u64,
    },
    /// A proof of another kind of statement.
    #[error("proof is of the circuit {got}, wanted {wanted}")]
    OtherCircuit {
        /// The circuit that the statement needs.
        wanted: String,
        /// The proof's.
        got: String,
    },
    /// The proof was made for other constraints or another back end.
    #[error("proof names another key of the circuit {circuit} than the one derived here")]
    OtherKey {
        /// The circuit.
        circuit: String,
    },
    /// The proof claims other security than its back end gives.
    #[error("proof claims {got}, its back end gives {wanted}")]
    OtherSecurity {
        /// What the back end gives.
        wanted: String,
        /// What the header says.
        got: String,
    },
    /// Bytes too few or too many.
    #[error("proof is {got} bytes, wanted {wanted}")]
    Size {
        /// What a proof of this circuit has.
        wanted: usize,
        /// What came.
        got: usize,
    },
    /// A point that is not on the curve, a number that is not reduced.
    #[error("proof holds a point or number that is not in its one encoding")]
    Encoding,
    /// The proof does not show the statement.
    #[error("proof does not show the statement")]
    Refused,
    /// The back end could not make keys or a proof.
    #[error("back end: {0}")]
    BackEnd(String),
}
