//! The compatibility layer for report 003: the functions of its server, rebuilt so that they can be
//! measured and compared (`docs/seeds.md`). Only the benchmark's arms and, behind a feature, the
//! command line depend on this package.
//!
//! **For comparison, not for protection.** [`ckks`] is the report's encryption scheme with its
//! parameters. [`ckks_slots`] applies an adapter under that scheme with the report's layout, in one
//! process that also holds the key. [`routes`] are the report's HTTP and WebSocket routes on a
//! server of `confide-serve`. [`split_mode`] is shared by both ends of the report's split mode, and
//! [`privacy`] is the noise that a client may add.

pub mod ckks;
pub mod ckks_slots;
mod error;
pub mod privacy;
pub mod routes;
pub mod split_mode;
