//! PostgreSQL, for several instances that share one set of documents. A lost connection is opened
//! again. The connection is not encrypted: use a local socket, or a private network.

use std::{sync::Arc, time::Duration};

use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls};

use super::{
    Database, DatabaseError, DatabaseFuture, WriteOutcome,
    row::{Row, clamp_to_i64, clamp_to_u64, dates_from_columns, missing_migrations, sql_for_write},
    schema,
};
use crate::{document::Document, kind::DocumentKind};

/// The longest time of one call, a new connection included.
const CALL_WAIT: Duration = Duration::from_secs(10);

/// The longest time of opening a connection.
const DIAL_WAIT: Duration = Duration::from_secs(5);

/// Takes the lock under which one instance at a time changes the schema. The number is arbitrary,
/// but no other application may use it.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7108241690)";

/// Documents in a PostgreSQL database.
pub struct Postgres {
    config: Config,
    client: Mutex<Option<Arc<Client>>>,
}

impl Postgres {
    /// Connects to `postgres://user:password@host/database`.
    ///
    /// # Errors
    /// A [`DatabaseError`] if the database does not answer, or is of a newer version.
    pub async fn open(url: &str) -> Result<Self, DatabaseError> {
        let mut config: Config = url.parse()?;
        config.connect_timeout(DIAL_WAIT).application_name("confide-pccs");
        let database = Self { config, client: Mutex::new(None) };
        with_deadline(database.migrate()).await?;
        Ok(database)
    }

    async fn client(&self) -> Result<Arc<Client>, DatabaseError> {
        let mut held = self.client.lock().await;
        if let Some(client) = held.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "the connection to PostgreSQL broke");
            }
        });
        let client = Arc::new(client);
        *held = Some(Arc::clone(&client));
        Ok(client)
    }

    async fn migrate(&self) -> Result<(), DatabaseError> {
        // Uses a connection of its own: a transaction needs the client for itself.
        let (mut client, connection) = self.config.connect(NoTls).await?;
        let driving = tokio::spawn(connection);
        let transaction = client.transaction().await?;
        transaction.batch_execute(MIGRATION_LOCK).await?;
        transaction.batch_execute(schema::VERSION_TABLE).await?;
        let version: Option<i64> = transaction.query_one(schema::VERSION, &[]).await?.get(0);
        for (step, (_, statements)) in missing_migrations(version)? {
            transaction.batch_execute(statements).await?;
            transaction.execute(schema::SET_VERSION, &[&step]).await?;
        }
        transaction.commit().await?;
        drop(client);
        let _ = driving.await;
        Ok(())
    }
}

impl Database for Postgres {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn read(&self, kind: DocumentKind, key: &str) -> DatabaseFuture<'_, Option<Document>> {
        let key = key.to_owned();
        Box::pin(with_deadline(async move {
            let client = self.client().await?;
            let row = client.query_opt(schema::READ, &[&kind.name(), &key]).await?;
            row.map(|row| read_row(&row)?.into_document()).transpose()
        }))
    }

    fn write(&self, document: Document) -> DatabaseFuture<'_, WriteOutcome> {
        let statement = sql_for_write(document.kind);
        let row = Row::new(document);
        Box::pin(with_deadline(async move {
            let client = self.client().await?;
            let Row { kind, key, number, issued, until, headers, body, fetched_at } = &row;
            let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
                [kind, key, number, issued, until, headers, body, fetched_at];
            if client.execute(statement, &columns).await? > 0 {
                return Ok(WriteOutcome::Stored);
            }
            let row = client.query_one(schema::DATES, &[kind, key]).await?;
            let kept = dates_from_columns(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            Ok(WriteOutcome::Older { kept })
        }))
    }

    fn list_due(
        &self,
        fetched_before: u64,
        limit: usize,
    ) -> DatabaseFuture<'_, Vec<(DocumentKind, String)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Box::pin(with_deadline(async move {
            let client = self.client().await?;
            let rows = client.query(schema::DUE, &[&clamp_to_i64(fetched_before), &limit]).await?;
            let mut due = Vec::new();
            for row in rows {
                let (kind, key): (String, String) = (row.try_get(0)?, row.try_get(1)?);
                due.extend(DocumentKind::from_name(&kind).map(|kind| (kind, key)));
            }
            Ok(due)
        }))
    }

    fn count(&self) -> DatabaseFuture<'_, u64> {
        Box::pin(with_deadline(async move {
            let client = self.client().await?;
            let count: i64 = client.query_one(schema::COUNT, &[]).await?.try_get(0)?;
            Ok(clamp_to_u64(count))
        }))
    }
}

async fn with_deadline<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let late = DatabaseError::Deadline { database: "PostgreSQL", limit_s: CALL_WAIT.as_secs() };
    tokio::time::timeout(CALL_WAIT, work).await.unwrap_or(Err(late))
}

fn read_row(row: &tokio_postgres::Row) -> Result<Row, DatabaseError> {
    Ok(Row {
        kind: row.try_get(0)?,
        key: row.try_get(1)?,
        number: row.try_get(2)?,
        issued: row.try_get(3)?,
        until: row.try_get(4)?,
        headers: row.try_get(5)?,
        body: row.try_get(6)?,
        fetched_at: row.try_get(7)?,
    })
}
