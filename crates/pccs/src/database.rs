//! The databases of documents: SQLite in a file, or PostgreSQL for several instances.

pub(crate) mod open;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod row;
mod schema;
pub(crate) mod sqlite;

use std::pin::Pin;

use crate::{document::Document, edition::EditionDates, kind::DocumentKind};

/// The future of a database call.
pub type DatabaseFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// A database of documents, with the newest edition of each.
pub trait Database: Send + Sync + 'static {
    /// The name of the database: `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// Reads the document under this key.
    fn read(&self, kind: DocumentKind, key: &str) -> DatabaseFuture<'_, Option<Document>>;

    /// Stores the document, unless a later edition is stored. This is atomic: if two instances
    /// write at once, the newer edition wins.
    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome>;

    /// Lists at most `limit` documents that expire and were fetched before `fetched_before` (Unix
    /// seconds), those fetched longest ago first.
    fn list_due(
        &self,
        fetched_before: u64,
        limit: usize,
    ) -> DatabaseFuture<'_, Vec<(DocumentKind, String)>>;

    /// Counts the stored documents.
    fn count(&self) -> DatabaseFuture<'_, u64>;
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum WriteOutcome {
    /// The document was stored.
    Stored,
    /// The document was refused, because the stored one is newer.
    Older {
        /// The stored edition.
        kept: EditionDates,
    },
}

/// The reason for which a database call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// SQLite returned an error.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL returned an error or is disconnected.
    #[cfg(feature = "postgres")]
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// The database took too long.
    #[error("{database} did not answer within {limit_s} s")]
    Deadline {
        /// The database: `SQLite` or `PostgreSQL`.
        database: &'static str,
        /// The longest time of one call, in seconds.
        limit_s: u64,
    },
    /// The database was written by a newer version of this program.
    #[error("schema of the database: wanted version {wanted} or older, got {got}: upgrade confide")]
    NewerSchema {
        /// The newest version that this program knows.
        wanted: i64,
        /// The version of the database.
        got: i64,
    },
    /// A row cannot be parsed.
    #[error("row {kind} {key} of the database is malformed")]
    MalformedRow {
        /// The row's kind.
        kind: String,
        /// The row's key.
        key: String,
    },
    /// The address is one of PostgreSQL, and this build has no driver for it.
    #[error("PostgreSQL is not supported by this build: the feature `postgres` is off")]
    NoDriver,
    /// The program is ending.
    #[error("the database is closed")]
    Closed,
}
