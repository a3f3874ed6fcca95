-- Version 1 of the index, as PostgreSQL spells it; the words for SQLite alone stand in comments.
-- It has been released: never edit it, every change is a new version.
CREATE TABLE confide_bench_records (
    sha256 TEXT NOT NULL PRIMARY KEY, suite TEXT NOT NULL, suite_sha256 TEXT NOT NULL,
    plan_sha256 TEXT NOT NULL, machine TEXT NOT NULL, version TEXT NOT NULL,
    made_at_commit TEXT NOT NULL, effort TEXT NOT NULL, started_unix_s BIGINT NOT NULL,
    wall_s DOUBLE PRECISION NOT NULL, partial TEXT, validity TEXT NOT NULL, path TEXT NOT NULL
) /* STRICT */;
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
) /* STRICT, WITHOUT ROWID */;
