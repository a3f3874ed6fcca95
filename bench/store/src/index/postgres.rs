//! PostgreSQL, for several people. Without TLS: by a socket, or through a tunnel.

use std::time::Duration;

use confide_bench::Facts;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tokio_postgres::{Client, NoTls, Row, types::ToSql};

use super::{
    Added, Cell, Index, Query, RecordLine, RowLine, list_cells, missing_migrations, record_cells,
    row_cells, rows_cells, schema,
};
use crate::error::StoreError;

/// How long a dial may take.
const DIAL_WAIT: Duration = Duration::from_secs(5);
/// How long one call may take: a record of a thousand rows over a slow line.
const CALL_WAIT: Duration = Duration::from_secs(60);
/// Under this lock one process at a time changes the schema; any number that nobody else uses.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7108241691)";

/// Records in a PostgreSQL database.
pub(super) struct Postgres {
    // Before the runtime, so that the connection ends while there is one.
    client: Client,
    runtime: Runtime,
}

impl Postgres {
    /// Connects to `postgres://user:password@host/database`.
    pub(super) fn open(url: &str) -> Result<Self, StoreError> {
        let mut config: tokio_postgres::Config = url.parse()?;
        config.connect_timeout(DIAL_WAIT).application_name("confide-bench");
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(StoreError::Runtime)?;
        let client = runtime.block_on(in_time(async {
            let (mut client, connection) = config.connect(NoTls).await?;
            // Its end shows in the next call.
            tokio::spawn(connection);
            migrate(&mut client).await?;
            Ok(client)
        }))?;
        Ok(Self { client, runtime })
    }

    fn lines<T>(
        &self,
        statement: &str,
        cells: &[Cell],
        of: fn(&Row) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Vec<T>, StoreError> {
        self.runtime.block_on(in_time(async {
            let rows = self.client.query(statement, &bound(cells)).await?;
            Ok(rows.iter().map(of).collect::<Result<_, _>>()?)
        }))
    }
}

impl Index for Postgres {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn add(&mut self, facts: &Facts, path: &str) -> Result<Added, StoreError> {
        let client = &mut self.client;
        self.runtime.block_on(in_time(async {
            let transaction = client.transaction().await?;
            let cells = record_cells(facts, path);
            if transaction.execute(schema::ADD_RECORD, &bound(&cells)).await? == 0 {
                return Ok(Added::Known);
            }
            let add_row = transaction.prepare(schema::ADD_ROW).await?;
            for (number, row) in facts.rows.iter().enumerate() {
                let cells = row_cells(&facts.sha256, number, row);
                transaction.execute(&add_row, &bound(&cells)).await?;
            }
            transaction.commit().await?;
            Ok(Added::New)
        }))
    }

    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError> {
        self.lines(schema::LIST, &list_cells(query), |row| {
            Ok(RecordLine {
                sha256: row.try_get(0)?,
                suite: row.try_get(1)?,
                machine: row.try_get(2)?,
                version: row.try_get(3)?,
                commit: row.try_get(4)?,
                started_unix_s: row.try_get(5)?,
                wall_s: row.try_get(6)?,
                partial: row.try_get(7)?,
                validity: row.try_get(8)?,
                path: row.try_get(9)?,
                rows: row.try_get(10)?,
            })
        })
    }

    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError> {
        self.lines(schema::ROWS, &rows_cells(query), |row| {
            Ok(RowLine {
                started_unix_s: row.try_get(0)?,
                sha256: row.try_get(1)?,
                validity: row.try_get(2)?,
                bench: row.try_get(3)?,
                case: row.try_get(4)?,
                arm: row.try_get(5)?,
                reference: row.try_get(6)?,
                twin: row.try_get::<_, i64>(7)? != 0,
                metric: row.try_get(8)?,
                stat: row.try_get(9)?,
                clear: row.try_get(10)?,
                protected: row.try_get(11)?,
                blocks: row.try_get(12)?,
                ratio: [row.try_get(13)?, row.try_get(14)?, row.try_get(15)?],
                difference: [row.try_get(16)?, row.try_get(17)?, row.try_get(18)?],
                verdict: row.try_get(19)?,
                simulated: row.try_get::<_, i64>(20)? != 0,
            })
        })
    }
}

async fn migrate(client: &mut Client) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(MIGRATION_LOCK).await?;
    transaction.batch_execute(schema::VERSION_TABLE).await?;
    let version: Option<i64> = transaction.query_one(schema::VERSION, &[]).await?.try_get(0)?;
    for (step, migration) in missing_migrations(version)? {
        transaction.batch_execute(migration.postgres).await?;
        transaction.execute(schema::SET_VERSION, &[&step]).await?;
    }
    Ok(transaction.commit().await?)
}

fn bound(cells: &[Cell]) -> Vec<&(dyn ToSql + Sync)> {
    cells.iter().map(as_sql).collect()
}

fn as_sql(cell: &Cell) -> &(dyn ToSql + Sync) {
    match cell {
        Cell::Text(text) => text,
        Cell::MaybeText(text) => text,
        Cell::Integer(number) => number,
        Cell::Float(number) => number,
        Cell::MaybeFloat(number) => number,
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = StoreError::Late { limit_s: CALL_WAIT.as_secs() };
    timeout(CALL_WAIT, work).await.unwrap_or(Err(late))
}
