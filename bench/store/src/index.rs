//! The index of many records: SQLite in a file, or PostgreSQL.

mod postgres;
mod schema;
mod sqlite;

use std::path::Path;

use confide_bench::{Facts, RowFacts};

use postgres::Postgres;
use sqlite::Sqlite;

use crate::error::StoreError;

/// Lines of one answer; whoever wants more narrows the question.
const LINES_MAX: i64 = 10_000;

/// Knows records by their hash, and their rows.
pub trait Index {
    /// `sqlite` or `postgresql`.
    fn name(&self) -> &'static str;

    /// Adds a record and its rows in one step, where it is not known yet.
    fn add(&mut self, facts: &Facts, path: &str) -> Result<Added, StoreError>;

    /// Records, the newest first.
    fn list(&mut self, query: &Query) -> Result<Vec<RecordLine>, StoreError>;

    /// Rows over records, the newest record first: the history of a row.
    fn rows(&mut self, query: &Query) -> Result<Vec<RowLine>, StoreError>;
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Added {
    /// It is new.
    New,
    /// It was there.
    Known,
}

/// Which records and rows. An empty field asks nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The suite's name.
    pub suite: String,
    /// A part of the machine's line, such as the processor's name.
    pub machine: String,
    /// The bench's name.
    pub bench: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// Started at or after this (unix seconds).
    pub since_unix_s: u64,
    /// A/A rows too.
    pub twins: bool,
}

/// A record in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordLine {
    /// What it is known by.
    pub sha256: String,
    /// The suite's name.
    pub suite: String,
    /// Processor, CPUs, memory and kernel.
    pub machine: String,
    /// The program's version.
    pub version: String,
    /// The commit.
    pub commit: String,
    /// Wall clock at its start.
    pub started_unix_s: i64,
    /// Of all its sessions.
    pub wall_s: f64,
    /// Why it is partial.
    pub partial: Option<String>,
    /// `valid`, `invalid` or `not_judged`.
    pub validity: String,
    /// Where it was when it was added.
    pub path: String,
    /// How many rows it has.
    pub rows: i64,
}

/// A row of a record in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct RowLine {
    /// Of the record.
    pub started_unix_s: i64,
    /// The record's hash.
    pub sha256: String,
    /// What the A/A rows of the record say.
    pub validity: String,
    /// The bench.
    pub bench: String,
    /// The point of its grid.
    pub case: String,
    /// The arm.
    pub arm: String,
    /// What it is set against.
    pub reference: String,
    /// The A/A row.
    pub twin: bool,
    /// The metric.
    pub metric: String,
    /// How it was reduced.
    pub stat: String,
    /// Of the reference arm.
    pub clear: Option<f64>,
    /// Of the arm.
    pub protected: Option<f64>,
    /// Pairs.
    pub blocks: i64,
    /// The cost as a ratio, with its interval where one may be printed.
    pub ratio: [Option<f64>; 3],
    /// The cost as a difference, likewise.
    pub difference: [Option<f64>; 3],
    /// `within`, `above`, `below`, `undecided` or `not_evaluated`.
    pub verdict: String,
    /// It rests on something simulated.
    pub simulated: bool,
}

/// Opens what `place` names: `postgres://…` or `postgresql://…`, otherwise the path of a SQLite file,
/// which is made where it is missing. Brings the schema up to date.
///
/// # Errors
/// When the database cannot be opened or was written by a newer version.
pub fn open(place: &str) -> Result<Box<dyn Index>, StoreError> {
    if place.starts_with("postgres://") || place.starts_with("postgresql://") {
        return Ok(Box::new(Postgres::open(place)?));
    }
    Ok(Box::new(Sqlite::open(Path::new(place))?))
}

/// The migrations that a database at `version` lacks, with the version that each leads to.
fn missing_migrations(
    version: Option<i64>,
) -> Result<impl Iterator<Item = (i64, &'static schema::Migration)>, StoreError> {
    let (got, wanted) = (version.unwrap_or(0), schema::MIGRATIONS.len() as i64);
    if got < 0 || got > wanted {
        return Err(StoreError::Schema { wanted, got });
    }
    Ok((1..).zip(schema::MIGRATIONS).skip(got as usize))
}

/// A value to be bound.
#[derive(Clone, Debug)]
enum Cell {
    Text(String),
    MaybeText(Option<String>),
    Integer(i64),
    Float(f64),
    MaybeFloat(Option<f64>),
}

/// The columns of a record, in the order of [`schema::ADD_RECORD`].
fn record_cells(facts: &Facts, path: &str) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    vec![
        text(&facts.sha256),
        text(&facts.suite),
        text(&facts.suite_sha256),
        text(&facts.plan_sha256),
        text(&facts.machine),
        text(&facts.version),
        text(&facts.commit),
        text(&facts.effort),
        Cell::Integer(signed(facts.started_unix_s)),
        Cell::Float(facts.wall_s),
        Cell::MaybeText(facts.partial.clone()),
        text(&facts.validity),
        text(path),
    ]
}

/// The columns of a row, in the order of [`schema::ADD_ROW`].
fn row_cells(sha256: &str, number: usize, row: &RowFacts) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    let flag = |flag: bool| Cell::Integer(i64::from(flag));
    let mut cells = vec![
        text(sha256),
        Cell::Integer(number as i64),
        text(&row.label),
        text(&row.bench),
        text(&row.case),
        text(&row.model),
        text(&row.metric),
        text(&row.stat),
        text(&row.reference),
        text(&row.arm),
        flag(row.twin),
        flag(row.headline),
        Cell::MaybeFloat(row.clear),
        Cell::MaybeFloat(row.protected),
        Cell::Integer(row.blocks as i64),
    ];
    for estimate in [row.ratio, row.difference] {
        let ends = estimate.and_then(|estimate| estimate.interval);
        cells.push(Cell::MaybeFloat(estimate.map(|estimate| estimate.value)));
        cells.push(Cell::MaybeFloat(ends.map(|ends| ends[0])));
        cells.push(Cell::MaybeFloat(ends.map(|ends| ends[1])));
    }
    cells.extend([text(&row.verdict), flag(row.simulated), flag(row.client_bound)]);
    cells
}

/// What [`schema::LIST`] asks for.
fn list_cells(query: &Query) -> Vec<Cell> {
    vec![
        Cell::Text(query.suite.clone()),
        Cell::Text(query.machine.clone()),
        Cell::Integer(signed(query.since_unix_s)),
        Cell::Integer(LINES_MAX),
    ]
}

/// What [`schema::ROWS`] asks for.
fn rows_cells(query: &Query) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(text.to_owned());
    vec![
        text(&query.suite),
        text(&query.machine),
        Cell::Integer(signed(query.since_unix_s)),
        text(&query.bench),
        text(&query.arm),
        text(&query.metric),
        Cell::Integer(i64::from(query.twins)),
        Cell::Integer(LINES_MAX),
    ]
}

/// Seconds and counts stay far below 2^63.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
