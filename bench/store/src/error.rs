//! Why an index or an export failed.

use confide_bench::BenchError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// SQLite refused.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL refused or is gone.
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// PostgreSQL took too long.
    #[error("PostgreSQL did not answer in {limit_s} s")]
    Late {
        /// How long it had.
        limit_s: u64,
    },
    /// No runtime for the connection.
    #[error("cannot start the connection's runtime: {0}")]
    Runtime(std::io::Error),
    /// A later version of this program has been here.
    #[error("schema of the index: wanted version {wanted} at most, got {got}")]
    Schema {
        /// What this program knows.
        wanted: i64,
        /// What is there.
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
    /// The place to write to did not take it.
    #[error("cannot write the export: {0}")]
    Write(#[from] std::io::Error),
}
