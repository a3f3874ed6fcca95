//! The tables, and the statements. Every value is bound; no statement is put together at run time but
//! from constants of this file.

/// A version's statements.
pub(super) struct Migration {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// A version that has been released is never edited; what changes is a version more.
pub(super) const MIGRATIONS: &[Migration] = &[Migration {
    sqlite: "CREATE TABLE confide_bench_records (
        sha256 TEXT NOT NULL PRIMARY KEY, suite TEXT NOT NULL, suite_sha256 TEXT NOT NULL,
        plan_sha256 TEXT NOT NULL, machine TEXT NOT NULL, version TEXT NOT NULL,
        made_at_commit TEXT NOT NULL, effort TEXT NOT NULL, started_unix_s INTEGER NOT NULL,
        wall_s REAL NOT NULL, partial TEXT, validity TEXT NOT NULL, path TEXT NOT NULL
    ) STRICT;
    CREATE INDEX confide_bench_records_by_age ON confide_bench_records (started_unix_s);
    CREATE TABLE confide_bench_rows (
        sha256 TEXT NOT NULL REFERENCES confide_bench_records (sha256), number INTEGER NOT NULL,
        label TEXT NOT NULL, bench TEXT NOT NULL, point TEXT NOT NULL, model TEXT NOT NULL,
        metric TEXT NOT NULL, stat TEXT NOT NULL, reference TEXT NOT NULL, arm TEXT NOT NULL,
        twin INTEGER NOT NULL, headline INTEGER NOT NULL, clear REAL, protected REAL,
        blocks INTEGER NOT NULL, ratio REAL, ratio_low REAL, ratio_high REAL, difference REAL,
        difference_low REAL, difference_high REAL, verdict TEXT NOT NULL,
        simulated INTEGER NOT NULL, client_bound INTEGER NOT NULL, PRIMARY KEY (sha256, number)
    ) STRICT, WITHOUT ROWID;",
    postgres: "CREATE TABLE confide_bench_records (
        sha256 TEXT NOT NULL PRIMARY KEY, suite TEXT NOT NULL, suite_sha256 TEXT NOT NULL,
        plan_sha256 TEXT NOT NULL, machine TEXT NOT NULL, version TEXT NOT NULL,
        made_at_commit TEXT NOT NULL, effort TEXT NOT NULL, started_unix_s BIGINT NOT NULL,
        wall_s DOUBLE PRECISION NOT NULL, partial TEXT, validity TEXT NOT NULL, path TEXT NOT NULL
    );
    CREATE INDEX confide_bench_records_by_age ON confide_bench_records (started_unix_s);
    CREATE TABLE confide_bench_rows (
        sha256 TEXT NOT NULL REFERENCES confide_bench_records (sha256), number BIGINT NOT NULL,
        label TEXT NOT NULL, bench TEXT NOT NULL, point TEXT NOT NULL, model TEXT NOT NULL,
        metric TEXT NOT NULL, stat TEXT NOT NULL, reference TEXT NOT NULL, arm TEXT NOT NULL,
        twin BIGINT NOT NULL, headline BIGINT NOT NULL, clear DOUBLE PRECISION,
        protected DOUBLE PRECISION, blocks BIGINT NOT NULL, ratio DOUBLE PRECISION,
        ratio_low DOUBLE PRECISION, ratio_high DOUBLE PRECISION, difference DOUBLE PRECISION,
        difference_low DOUBLE PRECISION, difference_high DOUBLE PRECISION, verdict TEXT NOT NULL,
        simulated BIGINT NOT NULL, client_bound BIGINT NOT NULL, PRIMARY KEY (sha256, number)
    );",
}];

/// An empty table is version 0.
pub(super) const VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS confide_bench_schema (version BIGINT NOT NULL)";
pub(super) const VERSION: &str = "SELECT max(version) FROM confide_bench_schema";
pub(super) const SET_VERSION: &str = "INSERT INTO confide_bench_schema (version) VALUES ($1)";

pub(super) const ADD_RECORD: &str = "INSERT INTO confide_bench_records \
     (sha256, suite, suite_sha256, plan_sha256, machine, version, made_at_commit, effort, \
     started_unix_s, wall_s, partial, validity, path) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
     ON CONFLICT (sha256) DO NOTHING";

pub(super) const ADD_ROW: &str = "INSERT INTO confide_bench_rows \
     (sha256, number, label, bench, point, model, metric, stat, reference, arm, twin, headline, \
     clear, protected, blocks, ratio, ratio_low, ratio_high, difference, difference_low, \
     difference_high, verdict, simulated, client_bound) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
     $20, $21, $22, $23, $24)";

/// `replace` finds a part of a text alike in both, as it is written: where taking the part away
/// changes the text, the part is in it.
pub(super) const LIST: &str = "SELECT sha256, suite, machine, version, made_at_commit, \
     started_unix_s, wall_s, partial, validity, path, \
     (SELECT count(*) FROM confide_bench_rows r WHERE r.sha256 = c.sha256) \
     FROM confide_bench_records c \
     WHERE ($1 = '' OR suite = $1) AND ($2 = '' OR replace(machine, $2, '') <> machine) \
     AND started_unix_s >= $3 ORDER BY started_unix_s DESC, sha256 LIMIT $4";

pub(super) const ROWS: &str = "SELECT c.started_unix_s, c.sha256, c.validity, r.bench, r.point, \
     r.arm, r.reference, r.twin, r.metric, r.stat, r.clear, r.protected, r.blocks, r.ratio, \
     r.ratio_low, r.ratio_high, r.difference, r.difference_low, r.difference_high, r.verdict, \
     r.simulated FROM confide_bench_rows r JOIN confide_bench_records c ON c.sha256 = r.sha256 \
     WHERE ($1 = '' OR c.suite = $1) AND ($2 = '' OR replace(c.machine, $2, '') <> c.machine) \
     AND c.started_unix_s >= $3 AND ($4 = '' OR r.bench = $4) AND ($5 = '' OR r.arm = $5) \
     AND ($6 = '' OR r.metric = $6) AND (CAST($7 AS BIGINT) = 1 OR r.twin = 0) \
     ORDER BY r.bench, r.point, r.arm, r.reference, r.metric, r.stat, c.started_unix_s DESC, \
     c.sha256, r.number LIMIT $8";
