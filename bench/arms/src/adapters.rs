//! Arms of the suite `adapters`: what a private adapter costs, by scheme and by step.

pub(crate) mod batch;
pub(crate) mod chat;
mod direct;
mod dot;
mod floor;
pub(crate) mod head;
pub(crate) mod make;
mod masked;
pub(crate) mod operations;
mod problem;
pub(crate) mod projection;
mod remote;
pub(crate) mod socket;
mod spans;
mod step;
pub(crate) mod token;
