//! Many records: an index in SQLite or PostgreSQL, and exports to Parquet and other formats.
//!
//! The record of a run is the source of truth; everything here can be made again from records.

mod error;
mod export;
mod index;
mod parquet;
mod table;

pub use error::StoreError;
pub use export::{Format, TableName, export};
pub use index::{Added, Index, Query, RecordLine, RowLine, open};
