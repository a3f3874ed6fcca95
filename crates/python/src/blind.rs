//! The blind protocol (docs/blind-protocol.md) for hosts and key holders in Python: frames and messages, adapters in
//! PEFT's files, integers of weights, budgets and the audit log of `confide-lora`. A call handles a whole frame, batch
//! or file.

pub(crate) mod accounts;
mod arrays;
pub(crate) mod audit;
pub(crate) mod errors;
pub(crate) mod frames;
pub(crate) mod messages;
pub(crate) mod pack;
pub(crate) mod peft;
pub(crate) mod terms;
