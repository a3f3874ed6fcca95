//! The compatibility layer for report 003: the functions of its server, rebuilt so that they can be
//! measured and compared (`docs/seeds.md`). Nothing else in the workspace depends on this package,
//! except for the benchmark's arms and, by a feature, the command line.
//!
//! **For comparison, not for protection.** [`ckks`] is the report's encryption scheme with its
//! parameters, [`ckks_slots`] its arrangement of an adapter under that scheme: everything in one
//! process, key included. [`routes`] are the report's HTTP and WebSocket routes on a server of
//! `confide-serve`; [`split_mode`] is shared by both ends of its split mode, and [`privacy`] is the
//! noise that its client may add.

pub mod ckks;
pub mod ckks_slots;
mod error;
pub mod privacy;
pub mod routes;
pub mod split_mode;
