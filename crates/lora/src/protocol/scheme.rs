//! The two schemes of the protocol.

/// A scheme by which the host computes on vectors that it cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Masks are prepared in advance, and the online step only needs integer arithmetic.
    Masked,
    /// Every vector is sent as ciphertexts, without preparation.
    Direct,
}

impl Scheme {
    /// The name in options, logs and records.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Masked => "masked",
            Scheme::Direct => "direct",
        }
    }
}
