//! The loops of quantisation, compiled for wider registers.

#![allow(unsafe_code)] // Intrinsics behind run-time detection.

use super::portable;

/// Runs [`portable::square_sum_and_max`] in wider registers, with the same sums in the same order.
/// `None` if this machine has none.
pub(super) fn square_sum_and_max(real: &[f32]) -> Option<(f64, f32)> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn square_sum_and_max_avx512(real: &[f32]) -> (f64, f32) {
        portable::square_sum_and_max(real)
    }
    #[target_feature(enable = "avx2")]
    fn square_sum_and_max_avx2(real: &[f32]) -> (f64, f32) {
        portable::square_sum_and_max(real)
    }
    if has_avx512() {
        // SAFETY: the line above checked for the instructions.
        return Some(unsafe { square_sum_and_max_avx512(real) });
    }
    // SAFETY: the condition checks for the instructions.
    is_x86_feature_detected!("avx2").then(|| unsafe { square_sum_and_max_avx2(real) })
}

/// Runs [`portable::round_to_i16`] in wider registers. `None` if this machine has none.
pub(super) fn round_to_i16(real: &[f32], factor: f64, values: &mut [i16]) -> Option<u64> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn round_to_i16_avx512(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
        portable::round_to_i16(real, factor, values)
    }
    #[target_feature(enable = "avx2")]
    fn round_to_i16_avx2(real: &[f32], factor: f64, values: &mut [i16]) -> u64 {
        portable::round_to_i16(real, factor, values)
    }
    if has_avx512() {
        // SAFETY: the line above checked for the instructions.
        return Some(unsafe { round_to_i16_avx512(real, factor, values) });
    }
    // SAFETY: the condition checks for the instructions.
    is_x86_feature_detected!("avx2").then(|| unsafe { round_to_i16_avx2(real, factor, values) })
}

fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}
