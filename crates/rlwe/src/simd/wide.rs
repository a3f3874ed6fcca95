//! A loop that is compiled for several vector widths.

/// Runs `body`, inlined into the function below with the widest vectors that the machine supports,
/// so that it is compiled for them.
#[inline(always)]
pub(super) fn run_widest<T>(body: impl FnOnce() -> T) -> T {
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 && is_x86_feature_detected!("avx512vpopcntdq") {
        // SAFETY: the features were just detected.
        return unsafe { run_avx512_popcnt(body) };
    }
    if avx512 {
        // SAFETY: as above.
        return unsafe { run_avx512(body) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { run_avx2(body) };
    }
    body()
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512vpopcntdq")]
fn run_avx512_popcnt<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn run_avx512<T>(body: impl FnOnce() -> T) -> T {
    body()
}

#[target_feature(enable = "avx2")]
fn run_avx2<T>(body: impl FnOnce() -> T) -> T {
    body()
}
