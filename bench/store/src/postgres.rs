//! The index in a PostgreSQL database, for several people. The connection has no TLS: use a socket or a tunnel.

use std::time::Duration;

use confide_bench::RunFacts;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tokio_postgres::{
    Client, NoTls, Row,
    types::{FromSql, ToSql},
};

use crate::{
    error::StoreError,
    index::{
        AddOutcome, Columns, Index, Query, RecordLine, RowLine, SqlValue, list_query_values,
        record_insert_values, row_insert_values, rows_query_values,
    },
    schema,
};

/// The longest time for opening the connection.
const DIAL_WAIT: Duration = Duration::from_secs(5);
/// The longest time for one call: a record of a thousand rows over a slow line.
const CALL_WAIT: Duration = Duration::from_secs(60);
/// Takes the lock under which one process at a time changes the schema. Its number is arbitrary.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7108241691)";

/// An index of records in a PostgreSQL database.
pub(crate) struct Postgres {
    // Before the runtime, so that the connection ends while there is one.
    client: Client,
    runtime: Runtime,
}

impl Postgres {
    /// Connects to `postgres://user:password@host/database`.
    pub(crate) fn open(url: &str) -> Result<Self, StoreError> {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.connect_timeout(DIAL_WAIT).application_name("confide-bench");
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(StoreError::Runtime)?;
        let client = runtime.block_on(with_deadline(async {
            let (mut client, connection) = config.connect(NoTls).await?;
            // Where the connection breaks, the next call fails.
            tokio::spawn(connection);
            migrate(&mut client).await?;
            Ok(client)
        }))?;
        Ok(Self { client, runtime })
    }

    fn query<T>(
        &self,
        statement: &str,
        cells: &[SqlValue],
        read: fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.runtime.block_on(with_deadline(async {
            let rows = self.client.query(statement, &parameters(cells)).await?;
            rows.iter().map(read).collect()
        }))
    }
}

impl Index for Postgres {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn add(&mut self, facts: &RunFacts, path: &str) -> Result<AddOutcome, StoreError> {
        let client = &mut self.client;
        self.runtime.block_on(with_deadline(async {
            let transaction = client.transaction().await?;
            let cells = record_insert_values(facts, path);
            if transaction.execute(schema::ADD_RECORD, &parameters(&cells)).await? == 0 {
                return Ok(AddOutcome::Present);
            }
            let add_row = transaction.prepare(schema::ADD_ROW).await?;
            for cells in row_insert_values(facts) {
                transaction.execute(&add_row, &parameters(&cells)).await?;
            }
            transaction.commit().await?;
            Ok(AddOutcome::Added)
        }))
    }

    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError> {
        self.query(schema::LIST, &list_query_values(query), RecordLine::from_columns)
    }

    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError> {
        self.query(schema::ROWS, &rows_query_values(query), RowLine::from_columns)
    }
}

impl Columns for Row {
    fn column<T>(&self, index: usize) -> Result<T, StoreError>
    where
        T: rusqlite::types::FromSql + for<'a> FromSql<'a>,
    {
        Ok(self.try_get(index)?)
    }
}

async fn migrate(client: &mut Client) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(MIGRATION_LOCK).await?;
    transaction.batch_execute(schema::VERSION_TABLE).await?;
    let got = transaction.query_one(schema::VERSION, &[]).await?.try_get(0)?;
    let migrations = schema::missing_migrations(got).ok_or(StoreError::newer_schema(got))?;
    for (step, migration) in migrations {
        transaction.batch_execute(migration).await?;
        transaction.execute(schema::SET_VERSION, &[&step]).await?;
    }
    Ok(transaction.commit().await?)
}

fn parameters(cells: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    cells.iter().map(as_parameter).collect()
}

fn as_parameter(cell: &SqlValue) -> &(dyn ToSql + Sync) {
    match cell {
        SqlValue::Text(text) => text,
        SqlValue::Integer(number) => number,
        SqlValue::Float(number) => number,
    }
}

async fn with_deadline<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = StoreError::Late { limit_s: CALL_WAIT.as_secs() };
    timeout(CALL_WAIT, work).await.unwrap_or(Err(late))
}
