//! Errors of a statement, its witness or a proof.

/// The reason why a statement was not proved, or a proof was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CircuitError {
    /// There is no circuit for this number of bytes.
    #[error("{subject} has {got} bytes, wanted {least} to {most}")]
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
    /// The statement is false for the hidden part.
    #[error("{what}")]
    FalseStatement {
        /// The condition that is not met, as a sentence.
        what: &'static str,
    },
    /// The bytes are not a proof of this crate.
    #[error("not a circuit proof of version 1")]
    Magic,
    /// A field of the header has an unknown value.
    #[error("proof has an unknown {field}: {got}")]
    UnknownField {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        got: u64,
    },
    /// The proof is for another circuit.
    #[error("proof is for another circuit: wanted {wanted}, got {got}")]
    OtherCircuit {
        /// The circuit that the statement needs.
        wanted: String,
        /// The circuit in the header.
        got: String,
    },
    /// The proof was made for other constraints or another back end.
    #[error("proof was made with another proving key of the circuit {circuit}")]
    OtherKey {
        /// The circuit.
        circuit: String,
    },
    /// The proof claims a security other than that of its back end.
    #[error("security of the proof: wanted {wanted}, got {got}")]
    OtherSecurity {
        /// The security of the back end.
        wanted: String,
        /// The security in the header.
        got: String,
    },
    /// The proof has too few or too many bytes.
    #[error("proof has {got} bytes, wanted {wanted}")]
    ProofLength {
        /// The length of a proof of this circuit, in bytes.
        wanted: usize,
        /// The length of the given proof, in bytes.
        got: usize,
    },
    /// A point is not on the curve, or a number is not reduced.
    #[error("proof has a point or number in a non-canonical encoding")]
    Encoding,
    /// The proof is not valid for the statement and the context.
    #[error("proof is not valid for this statement and context")]
    Refused,
    /// The back end could not make keys or a proof.
    #[error("back end: {0}")]
    BackEnd(String),
}
