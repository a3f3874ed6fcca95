//! The curve of the proof system, and its scalars.

/// The curve T256, whose scalar field is the base field of P-256, with Hyrax commitments: no
/// trusted set-up.
pub(crate) type Curve = spartan2::provider::T256HyraxEngine;

/// A number modulo the order of the curve: a value of the witness or a public value.
pub(crate) type Scalar = <Curve as spartan2::traits::Engine>::Scalar;
