//! Where documents are kept: SQLite in a file, or PostgreSQL for several instances.

#[cfg(feature = "postgres")]
mod postgres;
mod schema;
mod sqlite;

use std::{pin::Pin, sync::Arc};

#[cfg(feature = "postgres")]
pub use postgres::Postgres;
pub use sqlite::Sqlite;

use crate::{document::Document, edition::Dates, kind::Kind};

/// A database's answer, later.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 'a>>;

/// Keeps documents, the newest edition of each.
pub trait Database: Send + Sync + 'static {
    /// `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// The document under this key.
    fn read(&self, kind: Kind, key: &str) -> Answering<'_, Option<Document>>;

    /// Keeps the document, unless an edition after it is kept. One step: of two instances that write
    /// at once, the newer edition wins.
    fn write(&self, document: Document) -> Answering<'_, Written>;

    /// Documents that end some day and were fetched before `fetched_before` (unix seconds), those
    /// fetched longest ago first, `limit` at most.
    fn due(&self, fetched_before: u64, limit: usize) -> Answering<'_, Vec<(Kind, String)>>;

    /// How many documents are kept.
    fn count(&self) -> Answering<'_, u64>;
}

/// What became of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// It is kept.
    Kept,
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
        /// Which.
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

/// Opens what `url` names: `postgres://…` or `postgresql://…`, otherwise the path of a SQLite file,
/// which is made where it is missing. Brings the schema up to date.
///
/// # Errors
/// [`DatabaseError`].
pub async fn open(url: &str) -> Result<Arc<dyn Database>, DatabaseError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        #[cfg(feature = "postgres")]
        return Ok(Arc::new(Postgres::open(url).await?));
        #[cfg(not(feature = "postgres"))]
        return Err(DatabaseError::NoDriver);
    }
    Ok(Arc::new(Sqlite::open(url.as_ref()).await?))
}

/// A document as a row: the columns of [`schema`], in its order.
struct Row {
    kind: String,
    key: String,
    number: i64,
    issued: i64,
    until: i64,
    headers: String,
    body: Vec<u8>,
    fetched_at: i64,
}

impl Row {
    fn new(document: Document) -> Self {
        Self {
            kind: document.kind.name().into(),
            key: document.key,
            number: to_signed(document.dates.number),
            issued: to_signed(document.dates.issued),
            until: to_signed(document.dates.until),
            headers: serde_json::to_string(&document.headers).unwrap_or_default(),
            body: document.body,
            fetched_at: to_signed(document.fetched_at),
        }
    }

    fn document(self) -> Result<Document, DatabaseError> {
        let headers = serde_json::from_str(&self.headers).ok();
        match (Kind::from_name(&self.kind), headers) {
            (Some(kind), Some(headers)) => Ok(Document {
                kind,
                key: self.key,
                dates: dates(self.number, self.issued, self.until),
                headers,
                body: self.body,
                fetched_at: to_unsigned(self.fetched_at),
            }),
            _ => Err(DatabaseError::Row { kind: self.kind, key: self.key }),
        }
    }
}

fn write_statement(kind: Kind) -> &'static str {
    if kind.is_revocation_list() { schema::WRITE_LIST } else { schema::WRITE }
}

/// The migrations that a database of this version lacks, each with the version it leads to.
fn missing(
    version: Option<i64>,
) -> Result<impl Iterator<Item = (i64, &'static (&'static str, &'static str))>, DatabaseError> {
    let (got, wanted) = (version.unwrap_or(0), to_signed(schema::MIGRATIONS.len() as u64));
    if !(0..=wanted).contains(&got) {
        return Err(DatabaseError::Schema { wanted, got });
    }
    Ok((1..).zip(schema::MIGRATIONS).skip_while(move |(step, _)| *step <= got))
}

fn dates(number: i64, issued: i64, until: i64) -> Dates {
    let [number, issued, until] = [number, issued, until].map(to_unsigned);
    Dates { number, issued, until }
}

/// SQL knows signed numbers only. A number above them is kept as the greatest, so that nothing below
/// replaces it.
fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
