//! SQLite in a file, for one person.

use std::{path::Path, time::Duration};

use confide_bench::Facts;
use rusqlite::{Connection, Row, ToSql, TransactionBehavior, params_from_iter};

use super::{
    Added, Cell, Index, Query, RecordLine, RowLine, list_cells, missing_migrations, record_cells,
    row_cells, rows_cells, schema,
};
use crate::error::StoreError;

/// How long another process may hold the file.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Records in a SQLite file.
pub(super) struct Sqlite(Connection);

impl Sqlite {
    /// Opens the file, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_WAIT)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(schema::VERSION_TABLE, [])?;
        let version: Option<i64> = transaction.query_row(schema::VERSION, [], |row| row.get(0))?;
        for (step, migration) in missing_migrations(version)? {
            transaction.execute_batch(migration.sqlite)?;
            transaction.execute(schema::SET_VERSION, [step])?;
        }
        transaction.commit()?;
        Ok(Self(connection))
    }

    fn lines<T>(
        &self,
        statement: &str,
        cells: Vec<Cell>,
        of: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.0.prepare_cached(statement)?;
        let lines = statement.query_map(params_from_iter(cells), of)?;
        Ok(lines.collect::<rusqlite::Result<_>>()?)
    }
}

impl Index for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn add(&mut self, facts: &Facts, path: &str) -> Result<Added, StoreError> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let cells = params_from_iter(record_cells(facts, path));
        if transaction.execute(schema::ADD_RECORD, cells)? == 0 {
            return Ok(Added::Known);
        }
        for (number, row) in facts.rows.iter().enumerate() {
            let cells = params_from_iter(row_cells(&facts.sha256, number, row));
            transaction.prepare_cached(schema::ADD_ROW)?.execute(cells)?;
        }
        transaction.commit()?;
        Ok(Added::New)
    }

    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError> {
        self.lines(schema::LIST, list_cells(query), |row| {
            Ok(RecordLine {
                sha256: row.get(0)?,
                suite: row.get(1)?,
                machine: row.get(2)?,
                version: row.get(3)?,
                commit: row.get(4)?,
                started_unix_s: row.get(5)?,
                wall_s: row.get(6)?,
                partial: row.get(7)?,
                validity: row.get(8)?,
                path: row.get(9)?,
                rows: row.get(10)?,
            })
        })
    }

    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError> {
        self.lines(schema::ROWS, rows_cells(query), |row| {
            Ok(RowLine {
                started_unix_s: row.get(0)?,
                sha256: row.get(1)?,
                validity: row.get(2)?,
                bench: row.get(3)?,
                case: row.get(4)?,
                arm: row.get(5)?,
                reference: row.get(6)?,
                twin: row.get::<_, i64>(7)? != 0,
                metric: row.get(8)?,
                stat: row.get(9)?,
                clear: row.get(10)?,
                protected: row.get(11)?,
                blocks: row.get(12)?,
                ratio: [row.get(13)?, row.get(14)?, row.get(15)?],
                difference: [row.get(16)?, row.get(17)?, row.get(18)?],
                verdict: row.get(19)?,
                simulated: row.get::<_, i64>(20)? != 0,
            })
        })
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::MaybeText(text) => text.to_sql(),
            Self::Integer(number) => number.to_sql(),
            Self::Float(number) => number.to_sql(),
            Self::MaybeFloat(number) => number.to_sql(),
        }
    }
}
