//! The index in a SQLite file, for one person.

use std::{path::Path, time::Duration};

use confide_bench::RunFacts;
use rusqlite::{
    Connection, Row, ToSql, TransactionBehavior, params_from_iter,
    types::{FromSql, ToSqlOutput},
};

use crate::{
    error::StoreError,
    index::{
        AddOutcome, Columns, Index, Query, RecordLine, RowLine, SqlValue, list_query_values,
        record_insert_values, row_insert_values, rows_query_values,
    },
    schema,
};

/// The longest time for which another process may lock the file.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// An index of records in a SQLite file.
pub(crate) struct Sqlite(Connection);

impl Sqlite {
    /// Opens the file, which is made where it is missing, and brings its schema up to date.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_WAIT)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(schema::VERSION_TABLE, [])?;
        let got = transaction.query_row(schema::VERSION, [], |row| row.get(0))?;
        let migrations = schema::missing_migrations(got).ok_or(StoreError::newer_schema(got))?;
        for (step, migration) in migrations {
            transaction.execute_batch(&to_sqlite(migration))?;
            transaction.execute(schema::SET_VERSION, [step])?;
        }
        transaction.commit()?;
        Ok(Self(connection))
    }

    fn query<T>(
        &self,
        statement: &str,
        cells: Vec<SqlValue>,
        read: fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = self.0.prepare(statement)?;
        statement.query_and_then(params_from_iter(cells), read)?.collect()
    }
}

/// A migration as SQLite spells it: with SQLite's names of types, and with the words that stand in comments for it.
fn to_sqlite(migration: &str) -> String {
    let typed = migration.replace("BIGINT", "INTEGER").replace("DOUBLE PRECISION", "REAL");
    typed.replace("/*", "").replace("*/", "")
}

impl Index for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn add(&mut self, facts: &RunFacts, path: &str) -> Result<AddOutcome, StoreError> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let cells = params_from_iter(record_insert_values(facts, path));
        if transaction.execute(schema::ADD_RECORD, cells)? == 0 {
            return Ok(AddOutcome::Present);
        }
        let mut add_row = transaction.prepare(schema::ADD_ROW)?;
        for cells in row_insert_values(facts) {
            add_row.execute(params_from_iter(cells))?;
        }
        drop(add_row);
        transaction.commit()?;
        Ok(AddOutcome::Added)
    }

    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError> {
        self.query(schema::LIST, list_query_values(query), |row| RecordLine::from_columns(row))
    }

    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError> {
        self.query(schema::ROWS, rows_query_values(query), |row| RowLine::from_columns(row))
    }
}

impl Columns for Row<'_> {
    fn column<T>(&self, index: usize) -> Result<T, StoreError>
    where
        T: FromSql + for<'a> tokio_postgres::types::FromSql<'a>,
    {
        Ok(self.get(index)?)
    }
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(text) => text.to_sql(),
            Self::Integer(number) => number.to_sql(),
            Self::Float(number) => number.to_sql(),
        }
    }
}
