//! Public values of a proof, shared by guest, prover and checker.
#![no_std]
extern crate alloc;
