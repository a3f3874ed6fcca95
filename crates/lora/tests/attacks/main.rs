//! Attacks on the two schemes, as tests. Each attack must fail against the real scheme. Each has a
//! control without one protection, in which the attack succeeds, to show that the test can fail.

mod algebra;
mod counters;
mod linear_system;
mod malformed;
mod one_answer;
mod packing;
mod parties;
mod probing;
#[allow(dead_code, reason = "shared with tests/blind")]
#[path = "../blind/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with tests/blind")]
#[path = "../blind/test_host.rs"]
mod test_host;
mod uniform;
