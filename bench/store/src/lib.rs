//! Many records: an index in SQLite or PostgreSQL, and exports to Parquet and other formats.
//!
//! The record of a run is the source of truth; everything here can be made again from records.

mod error;
mod export;
mod index;
mod parquet;
mod postgres;
mod schema;
mod sqlite;
mod table;

use std::path::Path;

pub use error::StoreError;
pub use export::{ExportFormat, TableName, export};
pub use index::{AddOutcome, Index, Query, RecordLine, RowLine};

/// Opens what `place` names: `postgres://…` or `postgresql://…`, otherwise the path of a SQLite file, which is made
/// where it is missing. Brings the schema up to date.
///
/// # Errors
/// [`StoreError`] if the database cannot be opened or was written by a newer version.
pub fn open_index(place: &str) -> Result<Box<dyn Index>, StoreError> {
    if place.starts_with("postgres://") || place.starts_with("postgresql://") {
        return Ok(Box::new(postgres::Postgres::open(place)?));
    }
    Ok(Box::new(sqlite::Sqlite::open(Path::new(place))?))
}
