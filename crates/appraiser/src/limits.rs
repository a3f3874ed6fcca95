//! The limits of what is kept, each with its reason.

use std::time::Duration;

/// Platforms whose verdicts are kept: PCK certificates and quoting enclaves, this many of each.
/// One of either takes less than a kilobyte (`examples/memory.rs` measures it), so that all of them
/// stay below 200 MB.
pub const PLATFORMS_MAX: usize = 100_000;

/// The longest serial number of a PCK certificate that is kept: RFC 5280 allows 20 bytes. It is the one
/// part of an entry whose length a certificate chooses.
pub const SERIAL_LENGTH_MAX: usize = 32;

/// AMD chip keys that are kept, with the endorsements that they were learnt from: about 12 KB each.
pub const CHIPS_MAX: usize = 4_096;

/// The longest endorsements of a chip that are kept; real ones have about 12 KB. Anyone who staples them
/// chooses how much white space is in them. Longer ones are judged each time.
pub const CHIP_ENDORSEMENTS_LENGTH_MAX: usize = 32 * 1024;

/// Sets of endorsements that are held prepared: one for each processor family and CA of a fleet. A
/// set takes about 60 KB.
pub const SETS_MAX: usize = 64;

/// Sets that are being prepared at one time; what comes beyond is prepared without being shared.
pub const FLIGHTS_MAX: usize = 64;

/// The longest wait of an appraisal for endorsements that have to be fetched.
pub const FETCH_DEADLINE: Duration = Duration::from_secs(10);
