//! Statements over hidden bytes as zero-knowledge circuits.
