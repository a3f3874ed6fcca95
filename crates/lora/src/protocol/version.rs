//! The version of the protocol, and the bytes that tell it from others.

/// The version that this end speaks.
pub const VERSION: u16 = 1;

/// The first bytes of a connection, which tell this protocol from another in the same channel.
pub const MAGIC: [u8; 8] = *b"CFDBLIND";
