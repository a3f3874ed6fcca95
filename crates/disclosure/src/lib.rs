//! Commit to a transcript, open parts of it.
