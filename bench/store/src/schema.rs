//! The tables, and the statements. Every value is bound; no statement is put together at run time but from constants of
//! this file.

/// The tables of each version, as PostgreSQL spells them. A version that has been released is never
/// edited: every change is a new version.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// The migrations that a database at `version` lacks, each with the version that it leads to; `None` if the database
/// is of a later version than this program knows.
pub(crate) fn missing_migrations(
    version: i64,
) -> Option<impl Iterator<Item = (i64, &'static &'static str)>> {
    let known = usize::try_from(version).ok().filter(|version| *version <= MIGRATIONS.len())?;
    Some((1..).zip(MIGRATIONS).skip(known))
}

/// The latest version that this program knows.
pub(crate) const LATEST: i64 = MIGRATIONS.len() as i64;

/// Makes the table of versions; an empty one stands for version 0.
pub(crate) const VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS confide_bench_schema (version BIGINT NOT NULL)";
pub(crate) const VERSION: &str = "SELECT coalesce(max(version), 0) FROM confide_bench_schema";
pub(crate) const SET_VERSION: &str = "INSERT INTO confide_bench_schema (version) VALUES ($1)";

pub(crate) const ADD_RECORD: &str = "INSERT INTO confide_bench_records \
     (sha256, suite, suite_sha256, plan_sha256, machine, version, made_at_commit, effort, \
     started_unix_s, wall_s, partial, validity, path) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
     ON CONFLICT (sha256) DO NOTHING";

pub(crate) const ADD_ROW: &str = "INSERT INTO confide_bench_rows \
     (sha256, number, label, bench, point, model, metric, stat, reference, arm, twin, headline, \
     clear, protected, blocks, ratio, ratio_low, ratio_high, difference, difference_low, \
     difference_high, verdict, simulated, client_bound) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
     $20, $21, $22, $23, $24)";

/// Lists records. `replace` finds a part of a text literally and alike in both databases: where
/// removing the part changes the text, the text contains it.
pub(crate) const LIST: &str = "SELECT sha256, suite, machine, version, made_at_commit, \
     started_unix_s, wall_s, partial, validity, path, \
     (SELECT count(*) FROM confide_bench_rows r WHERE r.sha256 = c.sha256) \
     FROM confide_bench_records c \
     WHERE ($1 = '' OR suite = $1) AND ($2 = '' OR replace(machine, $2, '') <> machine) \
     AND started_unix_s >= $3 ORDER BY started_unix_s DESC, sha256 LIMIT $4";

pub(crate) const ROWS: &str = "SELECT c.started_unix_s, c.sha256, c.validity, r.bench, r.point, \
     r.arm, r.reference, r.twin, r.metric, r.stat, r.clear, r.protected, r.blocks, r.ratio, \
     r.ratio_low, r.ratio_high, r.difference, r.difference_low, r.difference_high, r.verdict, \
     r.simulated FROM confide_bench_rows r JOIN confide_bench_records c ON c.sha256 = r.sha256 \
     WHERE ($1 = '' OR c.suite = $1) AND ($2 = '' OR replace(c.machine, $2, '') <> c.machine) \
     AND c.started_unix_s >= $3 AND ($4 = '' OR r.bench = $4) AND ($5 = '' OR r.arm = $5) \
     AND ($6 = '' OR r.metric = $6) AND (CAST($7 AS BIGINT) = 1 OR r.twin = 0) \
     ORDER BY r.bench, r.point, r.arm, r.reference, r.metric, r.stat, c.started_unix_s DESC, \
     c.sha256, r.number LIMIT $8";
