//! Attacks on the two schemes, as tests. Each must fail against what is built, and each has a control
//! where one protection is taken away and the attack succeeds: a test that cannot fail shows nothing.

mod algebra;
mod counters;
mod linear_system;
mod malformed;
mod one_answer;
mod probing;
mod uniform;
mod world;
