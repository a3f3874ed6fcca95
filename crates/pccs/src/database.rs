//! Where documents are kept: SQLite in a file, or PostgreSQL for several instances.

pub(crate) mod open;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod row;
mod schema;
pub(crate) mod sqlite;

use std::pin::Pin;

use crate::{document::Document, edition::Dates, kind::Kind};

/// A database's answer, later.
pub type DatabaseFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// Keeps documents, the newest edition of each.
pub trait Database: Send + Sync + 'static {
    /// `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// The document under this key.
    fn read(&self, kind: Kind, key: &str) -> DatabaseFuture<'_, Option<Document>>;

    /// Keeps the document, unless an edition after it is kept. One step: of two instances that write
    /// at once, the newer edition wins.
    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome>;

    /// Documents that end some day and were fetched before `fetched_before` (unix seconds), those
    /// fetched longest ago first, `limit` at most.
    fn due(&self, fetched_before: u64, limit: usize) -> DatabaseFuture<'_, Vec<(Kind, String)>>;

    /// How many documents are kept.
    fn count(&self) -> DatabaseFuture<'_, u64>;
}

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome {
    /// It is kept.
    Stored,
    /// It is older than the one that is kept, which stays.
    Older {
        /// The edition that stays.
        kept: Dates,
    },
}

/// Why a database did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// SQLite refused.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL refused or is gone.
    #[cfg(feature = "postgres")]
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// The database took too long.
    #[error("{database} did not answer in {limit_s} s")]
    Late {
        /// The database: `SQLite` or `PostgreSQL`.
        database: &'static str,
        /// How long it had.
        limit_s: u64,
    },
    /// A later version of this program has been here.
    #[error("schema of the database: wanted version {wanted} at most, got {got}")]
    Schema {
        /// What this program knows.
        wanted: i64,
        /// What is there.
        got: i64,
    },
    /// A row that this program did not write.
    #[error("row {kind} {key} of the database is malformed")]
    Row {
        /// The row's kind.
        kind: String,
        /// The row's key.
        key: String,
    },
    /// The address is that of a database that this build has no driver for.
    #[error("PostgreSQL: this build has no driver for it")]
    NoDriver,
    /// The program is ending.
    #[error("the database is closed")]
    Closed,
}
