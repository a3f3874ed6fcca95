//! `confide-tool`: arms of the bench that drive other people's measuring tools, one file each.
//!
//! Like every arm they speak `bench/PROTOCOL.md`. They know no product crate.

fn main() {}
