//! Attacks on the two schemes, as tests. Each must fail against what is built, and each has a control
//! where one protection is taken away and the attack succeeds: a test that cannot fail shows nothing.

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
