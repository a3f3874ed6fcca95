//! The index of many records: its queries and the lines of its answers, the same for every database.

use confide_bench::{RowFacts, RunFacts};
use rusqlite::types::FromSql;

use crate::error::StoreError;

/// The most lines of one answer; narrower queries give the others.
const LINES_MAX: i64 = 10_000;

/// An index of records, which it knows by their hash, and of their rows.
pub trait Index {
    /// The database's name: `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// Adds a record and its rows in one step, where it is not known yet.
    ///
    /// # Errors
    /// [`StoreError`] if the database refuses.
    fn add(&mut self, facts: &RunFacts, path: &str) -> Result<AddOutcome, StoreError>;

    /// Lists records, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] if the database refuses.
    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError>;

    /// Lists rows over records, the newest record first: the history of a row.
    ///
    /// # Errors
    /// [`StoreError`] if the database refuses.
    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError>;
}

/// Whether a record was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AddOutcome {
    /// The record is new in the index.
    Added,
    /// The index had it already.
    Present,
}

/// The selection of records and rows. An empty field selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The suite's name.
    pub suite: String,
    /// A part of the machine's description, such as the processor's name.
    pub machine: String,
    /// The bench's name.
    pub bench: String,
    /// The arm's name.
    pub arm: String,
    /// The metric's name.
    pub metric: String,
    /// The earliest start, in Unix seconds.
    pub since_unix_s: u64,
    /// Whether A/A rows are selected too.
    pub twins: bool,
}

/// A record in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordLine {
    /// The record's SHA-256, by which it is known.
    pub sha256: String,
    /// The suite's name.
    pub suite: String,
    /// The machine: processor, CPUs, memory and kernel.
    pub machine: String,
    /// The version of the program that made it.
    pub version: String,
    /// The commit of that program.
    pub commit: String,
    /// When it was started, in Unix seconds.
    pub started_unix_s: i64,
    /// The wall time of all its sessions, in seconds.
    pub wall_s: f64,
    /// The reason for which it is partial; absent if it is complete.
    pub partial: Option<String>,
    /// The judgement of its A/A rows: `valid`, `invalid` or `not_judged`.
    pub validity: String,
    /// The path at which it was when it was added.
    pub path: String,
    /// The number of its rows.
    pub rows: i64,
}

/// A row of a record in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct RowLine {
    /// When the record was started, in Unix seconds.
    pub started_unix_s: i64,
    /// The record's SHA-256.
    pub sha256: String,
    /// The judgement of the record's A/A rows: `valid`, `invalid` or `not_judged`.
    pub validity: String,
    /// The bench's name.
    pub bench: String,
    /// The point of the bench's grid.
    pub case: String,
    /// The arm's name.
    pub arm: String,
    /// The reference arm's name.
    pub reference: String,
    /// Whether it is an A/A row.
    pub twin: bool,
    /// The metric's name.
    pub metric: String,
    /// The statistic to which the metric was reduced.
    pub stat: String,
    /// The figure of the reference arm.
    pub clear: Option<f64>,
    /// The figure of the arm.
    pub protected: Option<f64>,
    /// The number of paired blocks.
    pub blocks: i64,
    /// The cost as a ratio, and the ends of its interval where one may be printed.
    pub ratio: [Option<f64>; 3],
    /// The cost as a difference, and the ends of its interval where one may be printed.
    pub difference: [Option<f64>; 3],
    /// The verdict: `within`, `above`, `below`, `undecided` or `not_evaluated`.
    pub verdict: String,
    /// Whether its figures rest on something simulated.
    pub simulated: bool,
}

/// A row of a database's answer.
pub(crate) trait Columns {
    /// The value of the column with this index, from 0.
    fn column<T>(&self, index: usize) -> Result<T, StoreError>
    where
        T: FromSql + for<'a> tokio_postgres::types::FromSql<'a>;
}

impl RecordLine {
    /// Reads a row of `schema::LIST`.
    pub(crate) fn from_columns(row: &impl Columns) -> Result<Self, StoreError> {
        Ok(Self {
            sha256: row.column(0)?,
            suite: row.column(1)?,
            machine: row.column(2)?,
            version: row.column(3)?,
            commit: row.column(4)?,
            started_unix_s: row.column(5)?,
            wall_s: row.column(6)?,
            partial: row.column(7)?,
            validity: row.column(8)?,
            path: row.column(9)?,
            rows: row.column(10)?,
        })
    }
}

impl RowLine {
    /// Reads a row of `schema::ROWS`.
    pub(crate) fn from_columns(row: &impl Columns) -> Result<Self, StoreError> {
        Ok(Self {
            started_unix_s: row.column(0)?,
            sha256: row.column(1)?,
            validity: row.column(2)?,
            bench: row.column(3)?,
            case: row.column(4)?,
            arm: row.column(5)?,
            reference: row.column(6)?,
            twin: row.column::<i64>(7)? != 0,
            metric: row.column(8)?,
            stat: row.column(9)?,
            clear: row.column(10)?,
            protected: row.column(11)?,
            blocks: row.column(12)?,
            ratio: [row.column(13)?, row.column(14)?, row.column(15)?],
            difference: [row.column(16)?, row.column(17)?, row.column(18)?],
            verdict: row.column(19)?,
            simulated: row.column::<i64>(20)? != 0,
        })
    }
}

/// A value to be bound to a parameter of a statement.
#[derive(Clone, Debug)]
pub(crate) enum SqlValue {
    Text(Option<String>),
    Integer(i64),
    Float(Option<f64>),
}

impl From<&String> for SqlValue {
    fn from(text: &String) -> Self {
        Self::Text(Some(text.clone()))
    }
}

impl From<bool> for SqlValue {
    fn from(flag: bool) -> Self {
        Self::Integer(flag.into())
    }
}

/// The columns of a record, in the order of `schema::ADD_RECORD`.
pub(crate) fn record_insert_values(facts: &RunFacts, path: &str) -> Vec<SqlValue> {
    vec![
        (&facts.sha256).into(),
        (&facts.suite).into(),
        (&facts.suite_sha256).into(),
        (&facts.plan_sha256).into(),
        (&facts.machine).into(),
        (&facts.version).into(),
        (&facts.commit).into(),
        (&facts.effort).into(),
        SqlValue::Integer(to_signed(facts.started_unix_s)),
        SqlValue::Float(Some(facts.wall_s)),
        SqlValue::Text(facts.partial.clone()),
        (&facts.validity).into(),
        SqlValue::Text(Some(path.to_owned())),
    ]
}

/// The columns of a record's rows, in the order of `schema::ADD_ROW`.
pub(crate) fn row_insert_values(facts: &RunFacts) -> impl Iterator<Item = Vec<SqlValue>> {
    (0..).zip(&facts.rows).map(|(number, row)| row_values(&facts.sha256, number, row))
}

fn row_values(sha256: &String, number: i64, row: &RowFacts) -> Vec<SqlValue> {
    let texts = [
        &row.label,
        &row.bench,
        &row.case,
        &row.model,
        &row.metric,
        &row.stat,
        &row.reference,
        &row.arm,
    ];
    let mut cells = vec![sha256.into(), SqlValue::Integer(number)];
    cells.extend(texts.map(SqlValue::from));
    cells.extend([row.twin.into(), row.headline.into()]);
    cells.extend([SqlValue::Float(row.clear), SqlValue::Float(row.protected)]);
    cells.push(SqlValue::Integer(row.blocks as i64));
    for estimate in [row.ratio, row.difference] {
        let ends = estimate.and_then(|estimate| estimate.interval);
        cells.push(SqlValue::Float(estimate.map(|estimate| estimate.value)));
        cells.extend([0, 1].map(|end| SqlValue::Float(ends.map(|ends| ends[end]))));
    }
    cells.extend([(&row.verdict).into(), row.simulated.into(), row.client_bound.into()]);
    cells
}

/// The parameters of `schema::LIST`, in their order.
pub(crate) fn list_query_values(query: &Query) -> Vec<SqlValue> {
    let since = SqlValue::Integer(to_signed(query.since_unix_s));
    vec![(&query.suite).into(), (&query.machine).into(), since, SqlValue::Integer(LINES_MAX)]
}

/// The parameters of `schema::ROWS`, in their order.
pub(crate) fn rows_query_values(query: &Query) -> Vec<SqlValue> {
    let since = SqlValue::Integer(to_signed(query.since_unix_s));
    let mut cells = vec![(&query.suite).into(), (&query.machine).into(), since];
    cells.extend([&query.bench, &query.arm, &query.metric].map(SqlValue::from));
    cells.extend([query.twins.into(), SqlValue::Integer(LINES_MAX)]);
    cells
}

/// Converts seconds and counts, which stay far below 2^63.
fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
