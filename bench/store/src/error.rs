//! Reasons for which an index or an export fails.

use confide_bench::BenchError;

use crate::schema;

/// The reason for which an index or an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// SQLite refused.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL refused, or the connection broke.
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// PostgreSQL did not answer in time.
    #[error("PostgreSQL: wanted an answer within {limit_s} s, got none")]
    Late {
        /// The time that it had, in seconds.
        limit_s: u64,
    },
    /// The connection's runtime cannot be started.
    #[error("cannot start the connection's runtime: {0}")]
    Runtime(std::io::Error),
    /// A later version of this program wrote the index.
    #[error("index: wanted schema version {wanted} at most, got {got}")]
    Schema {
        /// The latest version that this program knows.
        wanted: i64,
        /// The version of the index.
        got: i64,
    },
    /// A record could not be read.
    #[error(transparent)]
    Record(#[from] BenchError),
    /// Parquet could not be written.
    #[error("parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// JSON could not be written.
    #[error("json: {0}")]
    Json(#[from] serde_json::Error),
    /// The export cannot be written.
    #[error("cannot write the export: {0}")]
    Write(#[from] std::io::Error),
}

impl StoreError {
    /// The error of an index whose schema has a version that this program does not know.
    pub(crate) fn newer_schema(got: i64) -> Self {
        Self::Schema { wanted: schema::LATEST, got }
    }
}
