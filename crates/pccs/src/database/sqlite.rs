//! SQLite in a file, for one instance. Its calls block, so they run on the runtime's blocking
//! threads, one at a time.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{
    Database, DatabaseError, DatabaseFuture, WriteOutcome,
    row::{Row, clamp_to_i64, dates_from_columns, missing_migrations, sql_for_write},
    schema,
};
use crate::{document::Document, kind::DocumentKind};

/// The longest wait for another process that has locked the file.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Documents in a SQLite file.
pub struct Sqlite(Arc<Mutex<Connection>>);

impl Sqlite {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// A [`DatabaseError`] if the file cannot be opened, or is of a newer version.
    pub async fn open(path: &Path) -> Result<Self, DatabaseError> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || connect(&path)).await;
        let connection = opened.map_err(|_| DatabaseError::Closed)??;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> DatabaseFuture<'_, T> {
        let connection = Arc::clone(&self.0);
        Box::pin(async move {
            let working = tokio::task::spawn_blocking(move || {
                // A transaction that a panic interrupted is rolled back when it is dropped.
                work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
            });
            working.await.map_err(|_| DatabaseError::Closed)?
        })
    }
}

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn read(&self, kind: DocumentKind, key: &str) -> DatabaseFuture<'_, Option<Document>> {
        let key = key.to_owned();
        self.run_blocking(move |connection| {
            let mut statement = connection.prepare(schema::READ)?;
            let row = statement.query_row(params![kind.name(), key], read_row).optional()?;
            row.map(Row::into_document).transpose()
        })
    }

    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome> {
        let statement = sql_for_write(document.kind);
        let row = Row::new(document);
        self.run_blocking(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Row { kind, key, number, issued, until, headers, body, fetched_at } = row;
            let changed = transaction
                .prepare(statement)?
                .execute(params![kind, key, number, issued, until, headers, body, fetched_at])?;
            let written = if changed == 0 {
                let kept = transaction.query_row(schema::DATES, params![kind, key], |row| {
                    Ok(dates_from_columns(row.get(0)?, row.get(1)?, row.get(2)?))
                })?;
                WriteOutcome::Older { kept }
            } else {
                WriteOutcome::Stored
            };
            transaction.commit()?;
            Ok(written)
        })
    }

    fn list_due(
        &self,
        fetched_before: u64,
        limit: usize,
    ) -> DatabaseFuture<'_, Vec<(DocumentKind, String)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.run_blocking(move |connection| {
            let mut statement = connection.prepare(schema::DUE)?;
            let rows = statement
                .query_map(params![clamp_to_i64(fetched_before), limit], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
                })?;
            let mut due = Vec::new();
            for row in rows {
                let (kind, key) = row?;
                due.extend(DocumentKind::from_name(&kind).map(|kind| (kind, key)));
            }
            Ok(due)
        })
    }

    fn count(&self) -> DatabaseFuture<'_, u64> {
        self.run_blocking(|connection| {
            Ok(connection.query_row(schema::COUNT, [], |row| row.get(0))?)
        })
    }
}

fn connect(path: &Path) -> Result<Connection, DatabaseError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    // In this mode readers do not wait for the writer, and a crash leaves the last complete commit.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    migrate(&mut connection)?;
    Ok(connection)
}

fn migrate(connection: &mut Connection) -> Result<(), DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(schema::VERSION_TABLE_SQLITE, [])?;
    let version: Option<i64> = transaction.query_row(schema::VERSION, [], |row| row.get(0))?;
    for (step, (statements, _)) in missing_migrations(version)? {
        transaction.execute_batch(statements)?;
        transaction.execute(schema::SET_VERSION, params![step])?;
    }
    Ok(transaction.commit()?)
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        kind: row.get(0)?,
        key: row.get(1)?,
        number: row.get(2)?,
        issued: row.get(3)?,
        until: row.get(4)?,
        headers: row.get(5)?,
        body: row.get(6)?,
        fetched_at: row.get(7)?,
    })
}
