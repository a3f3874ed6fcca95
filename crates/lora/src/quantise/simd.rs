//! The loops of quantisation, compiled for the registers that this machine has.

#![allow(unsafe_code)] // instructions that run-time detection has found

use super::portable;

/// Does what [`portable::scan`] does in wider registers: the same sums in the same order. `None`
/// where this machine has none.
pub(super) fn scan(real: &[f32]) -> Option<(f64, f32)> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn avx512(real: &[f32]) -> (f64, f32) {
        portable::scan(real)
    }
    #[target_feature(enable = "avx2")]
    fn avx2(real: &[f32]) -> (f64, f32) {
        portable::scan(real)
    }
    if has_avx512() {
        // SAFETY: the instructions are there, as the line above says.
        return Some(unsafe { avx512(real) });
    }
    // SAFETY: the instructions are there, as the condition says.
    is_x86_feature_detected!("avx2").then(|| unsafe { avx2(real) })
}

/// Does what [`portable::round`] does in wider registers. `None` if this machine has none.
pub(super) fn round(real: &[f32], factor: f64, values: &mut [i16]) -> Option<u64> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn avx512(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
        portable::round(real, factor, values)
    }
    #[target_feature(enable = "avx2")]
    fn avx2(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
        portable::round(real, factor, values)
    }
    if has_avx512() {
        // SAFETY: the instructions are there, as the line above says.
        return Some(unsafe { avx512(real, factor, values) });
    }
    // SAFETY: the instructions are there, as the condition says.
    is_x86_feature_detected!("avx2").then(|| unsafe { avx2(real, factor, values) })
}

fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}
