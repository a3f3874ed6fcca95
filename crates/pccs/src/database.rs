//! The databases that keep documents: SQLite in a file, or PostgreSQL for several instances.

pub(crate) mod open;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod row;
mod schema;
pub(crate) mod sqlite;

use std::pin::Pin;

use crate::{document::Document, edition::Dates, kind::Kind};

/// The answer of a database, once it is there.
pub type DatabaseFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// Keeps documents, the newest edition of each.
pub trait Database: Send + Sync + 'static {
    /// The name of the database: `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// Reads the document under this key.
    fn read(&self, kind: Kind, key: &str) -> DatabaseFuture<'_, Option<Document>>;

    /// Keeps the document, unless a later edition is kept. This is one step: of two instances that
    /// write at once, the newer edition wins.
    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome>;

    /// Lists documents that end some day and were fetched before `fetched_before` (Unix seconds),
    /// those fetched longest ago first, `limit` at most.
    fn due(&self, fetched_before: u64, limit: usize) -> DatabaseFuture<'_, Vec<(Kind, String)>>;

    /// Counts the documents that are kept.
    fn count(&self) -> DatabaseFuture<'_, u64>;
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome {
    /// The document is kept.
    Stored,
    /// The document is older than the one that is kept, which stays.
    Older {
        /// The edition that stays.
        kept: Dates,
    },
}

/// The reason for which a database did not answer a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// SQLite returned an error.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL returned an error or is gone.
    #[cfg(feature = "postgres")]
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// The database took too long.
    #[error("{database} did not answer in {limit_s} s")]
    Late {
        /// The database: `SQLite` or `PostgreSQL`.
        database: &'static str,
        /// The longest time of one call, in seconds.
        limit_s: u64,
    },
    /// The database was written by a newer version of this program.
    #[error("schema of the database: wanted version {wanted} or older, got {got}: upgrade confide")]
    Schema {
        /// The newest version that this program knows.
        wanted: i64,
        /// The version of the database.
        got: i64,
    },
    /// A row was not written by this program.
    #[error("row {kind} {key} of the database is malformed")]
    Row {
        /// The row's kind.
        kind: String,
        /// The row's key.
        key: String,
    },
    /// The address is that of a database for which this build has no driver.
    #[error("PostgreSQL: this build has no driver for it")]
    NoDriver,
    /// The program is ending.
    #[error("the database is closed")]
    Closed,
}
