//! Arms of the bench that drive other people's measuring tools, one file each.
//!
//! Like every arm they speak `bench/PROTOCOL.md`. They know no product crate. A library, so that
//! the parsers of what the tools print can be fuzzed.

pub mod ab;
