//! The version of the protocol, and the bytes that identify it.

/// The version of the protocol that this crate implements.
pub const VERSION: u16 = 1;

/// The first bytes of a connection, which distinguish this protocol from others on the same channel.
pub const MAGIC: [u8; 8] = *b"CFDBLIND";
