//! What the verifier asks of its host.

/// The functions of the host. Calls wait until they are done.
pub(super) trait Host {
    /// Exports keying material of the session; an absent context is an empty one in TLS 1.3. False if it cannot.
    fn export(output: &mut [u8], label: &[u8], context: Option<&[u8]>) -> bool;

    /// Reads application bytes of the session: how many, 0 at its end, `None` after an error.
    fn read(room: &mut [u8]) -> Option<usize>;

    /// Writes all bytes to the session; false after an error.
    fn write(bytes: &[u8]) -> bool;

    /// The time in Unix seconds.
    fn unix_seconds() -> u64;
}
