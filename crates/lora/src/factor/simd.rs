//! The loop over panels, compiled for the registers that this machine has.

#![allow(unsafe_code)] // instructions that run-time detection has found

use super::panels::{Factor, add_panels};

/// Adds with the widest registers of this machine, where it has more than the portable code uses.
/// The same additions in the same order, never fused, so that results agree to the last bit.
pub(super) fn add(factor: &Factor, vectors: &[f32], outputs: &mut [f32]) -> bool {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there, as the line above says.
        unsafe { add_avx512(factor, vectors, outputs) };
        return true;
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the instructions are there, as the line above says.
        unsafe { add_avx2(factor, vectors, outputs) };
        return true;
    }
    false
}

#[target_feature(enable = "avx512f")]
fn add_avx512(factor: &Factor, vectors: &[f32], outputs: &mut [f32]) {
    add_panels(factor, vectors, outputs);
}

#[target_feature(enable = "avx2")]
fn add_avx2(factor: &Factor, vectors: &[f32], outputs: &mut [f32]) {
    add_panels(factor, vectors, outputs);
}
