//! One loop compiled for several widths of vectors.

/// Runs `body`, which is inlined into the widest of these functions that the machine has, and so
/// compiled for its features.
#[inline(always)]
pub(super) fn run<T>(body: impl FnOnce() -> T) -> T {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 && is_x86_feature_detected!("avx512vpopcntdq") {
        // SAFETY: its features were just seen.
        return unsafe { avx512_popcnt(body) };
    }
    if avx512 {
        // SAFETY: as above.
        return unsafe { avx512_alone(body) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { avx2(body) };
    }
    body()
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512vpopcntdq")]
fn avx512_popcnt<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn avx512_alone<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[target_feature(enable = "avx2")]
fn avx2<T>(body: impl FnOnce() -> T) -> T {
    body()
}
