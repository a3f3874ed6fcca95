//! Opens a database by its address.

use std::sync::Arc;

#[cfg(feature = "postgres")]
use super::postgres::Postgres;
use super::{Database, DatabaseError, sqlite::Sqlite};

/// Opens the database at `url`: `postgres://…` or `postgresql://…`, otherwise the path of a SQLite
/// file, which is created if it is missing. Brings the schema up to date.
///
/// # Errors
/// A [`DatabaseError`] if the database cannot be opened, or is of a newer version.
pub async fn open_database(url: &str) -> Result<Arc<dyn Database>, DatabaseError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        #[cfg(feature = "postgres")]
        return Ok(Arc::new(Postgres::open(url).await?));
        #[cfg(not(feature = "postgres"))]
        return Err(DatabaseError::NoDriver);
    }
    Ok(Arc::new(Sqlite::open(url.as_ref()).await?))
}
