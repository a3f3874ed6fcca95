//! The loop over panels, compiled for wider registers.

#![allow(unsafe_code)] // Intrinsics behind run-time detection.

use super::panels::{ScaledB, add_panel_products};

/// Runs [`add_panel_products`] with the widest registers of this machine. Returns `false` if they are not wider
/// than those of the portable code. The additions have the same order and are never fused, so the
/// results are equal to the last bit.
pub(super) fn add_products(factor: &ScaledB, vectors: &[f32], outputs: &mut [f32]) -> bool {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the line above checked for the instructions.
        unsafe { add_products_avx512(factor, vectors, outputs) };
        return true;
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the line above checked for the instructions.
        unsafe { add_products_avx2(factor, vectors, outputs) };
        return true;
    }
    false
}

#[target_feature(enable = "avx512f")]
fn add_products_avx512(factor: &ScaledB, vectors: &[f32], outputs: &mut [f32]) {
    add_panel_products(factor, vectors, outputs);
}

#[target_feature(enable = "avx2")]
fn add_products_avx2(factor: &ScaledB, vectors: &[f32], outputs: &mut [f32]) {
    add_panel_products(factor, vectors, outputs);
}
