//! The two schemes of the protocol.

/// How the host computes on what it cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Masks prepared before tokens run; integers online.
    Masked,
    /// A ciphertext for each vector.
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
