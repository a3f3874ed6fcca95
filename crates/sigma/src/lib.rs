//! Proofs that need no circuit.
