//! Fields of a quote at fixed places.

/// `N` bytes at `AT` of an array of `LEN`; that they lie inside is checked when it is compiled.
pub(super) fn field_at<const LEN: usize, const AT: usize, const N: usize>(
    bytes: &[u8; LEN],
) -> &[u8; N] {
    const { assert!(AT + N <= LEN) };
    match bytes[AT..].first_chunk() {
        Some(field) => field,
        None => unreachable!("bounds are checked at compile time"),
    }
}
