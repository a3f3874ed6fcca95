//! Many records: an index in SQLite or PostgreSQL, and exports to Parquet and other formats.
//!
//! The record of a run is the source of truth; everything here can be made again from records.
