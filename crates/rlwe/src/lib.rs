//! Encryption over Z_q\[X\]/(X^N + 1): what a party computes on without reading it.
//!
//! Ground floor: no I/O beside the operating system's randomness, no word of adapters or models.
