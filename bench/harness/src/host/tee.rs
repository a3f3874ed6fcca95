//! Signs of a confidential VM: several signals, their raw values, and which of them agree.
//!
//! A sign is not a proof: a host can show a guest any of them. An arm is protected where its evidence
//! was verified, and nothing here says "protected".

pub(crate) mod signal;
pub(crate) mod signals;
pub(crate) mod summary;

#[cfg(test)]
mod tests;
