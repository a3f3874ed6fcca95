//! Errors of a statement, its witness or a proof.

/// The reason why a statement was not proved, or a proof was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CircuitError {
    /// There is no circuit for this number of bytes.
    #[error("{subject} is {got} bytes, wanted {least} to {most}")]
    Length {
        /// The name of the bytes.
        subject: &'static str,
        /// The least number of bytes.
        least: usize,
        /// The greatest number of bytes.
        most: usize,
        /// The number of bytes that were given.
        got: usize,
    },
    /// There is no circuit for a tree of this depth.
    #[error("depth of the tree is {got}, wanted {} to {}", crate::DEPTH_LEAST, crate::DEPTH_MOST)]
    Depth {
        /// The depth of the tree.
        got: u8,
    },
    /// The hidden part does not make the statement true, so there is nothing to prove.
    #[error("{what}")]
    Untrue {
        /// The condition that fails, as a sentence.
        what: &'static str,
    },
    /// The bytes do not begin as a proof of this crate does.
    #[error("proof does not begin as a circuit proof does")]
    Magic,
    /// A field of the header has an unknown value.
    #[error("proof has an unknown {field}: {got}")]
    Header {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        got: u64,
    },
    /// The proof is of another kind of statement.
    #[error("proof is of the circuit {got}, wanted {wanted}")]
    OtherCircuit {
        /// The circuit that the statement needs.
        wanted: String,
        /// The circuit that the proof names.
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
        /// The security that the back end gives.
        wanted: String,
        /// The security that the header claims.
        got: String,
    },
    /// The proof has too few or too many bytes.
    #[error("proof is {got} bytes, wanted {wanted}")]
    Size {
        /// The length of a proof of this circuit, in bytes.
        wanted: usize,
        /// The length of the given proof, in bytes.
        got: usize,
    },
    /// A point is not on the curve, or a number is not reduced.
    #[error("proof has a point or number that is not in its canonical encoding")]
    Encoding,
    /// The proof does not show the statement.
    #[error("proof does not show the statement")]
    Refused,
    /// The back end could not make keys or a proof.
    #[error("back end: {0}")]
    BackEnd(String),
}
