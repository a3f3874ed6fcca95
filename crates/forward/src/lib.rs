//! What every HTTP end of the house does alike: which header fields pass a proxy, when the end of
//! an answer can be trusted to be its end, what becomes of a peer that does not read or speak, and how
//! connections are accepted and drained.

mod accept;
mod hop;
mod idle;
mod linger;
mod stall;

pub use accept::{Closing, Drained, accept_until};
pub use hop::{codings_are_undone, end_is_marked, remove_hop_by_hop};
pub use idle::IdleGuard;
pub use linger::Lingering;
pub use stall::StallGuard;
