//! The tables, and the statements that both databases understand.

/// Each version's statements: those of SQLite, then those of PostgreSQL. A released version is
/// never edited; a change adds a version.
pub(super) const MIGRATIONS: &[(&str, &str)] = &[(
    "CREATE TABLE documents (
        kind TEXT NOT NULL, key TEXT NOT NULL,
        number INTEGER NOT NULL, issued INTEGER NOT NULL, until INTEGER NOT NULL,
        headers TEXT NOT NULL, body BLOB NOT NULL, fetched_at INTEGER NOT NULL,
        PRIMARY KEY (kind, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX documents_by_age ON documents (fetched_at);",
    "CREATE TABLE documents (
        kind TEXT NOT NULL, key TEXT NOT NULL,
        number BIGINT NOT NULL, issued BIGINT NOT NULL, until BIGINT NOT NULL,
        headers TEXT NOT NULL, body BYTEA NOT NULL, fetched_at BIGINT NOT NULL,
        PRIMARY KEY (kind, key)
    );
    CREATE INDEX documents_by_age ON documents (fetched_at);",
)];

/// A table with one row, the version; an empty table is version 0.
#[cfg(feature = "postgres")]
pub(super) const VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS confide_pccs_schema (version BIGINT NOT NULL)";
/// The same table for SQLite, whose strict tables have another name for integers.
pub(super) const VERSION_TABLE_SQLITE: &str =
    "CREATE TABLE IF NOT EXISTS confide_pccs_schema (version INTEGER NOT NULL) STRICT";
pub(super) const VERSION: &str = "SELECT max(version) FROM confide_pccs_schema";
pub(super) const SET_VERSION: &str = "INSERT INTO confide_pccs_schema (version) VALUES ($1)";

pub(super) const READ: &str = "SELECT kind, key, number, issued, until, headers, body, fetched_at \
     FROM documents WHERE kind = $1 AND key = $2";

/// Writes a revocation list, unless the stored one has a higher number or a later date.
pub(super) const WRITE_LIST: &str = "INSERT INTO documents \
     (kind, key, number, issued, until, headers, body, fetched_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
     ON CONFLICT (kind, key) DO UPDATE SET number = excluded.number, issued = excluded.issued, \
     until = excluded.until, headers = excluded.headers, body = excluded.body, \
     fetched_at = excluded.fetched_at \
     WHERE documents.number <= excluded.number AND documents.issued <= excluded.issued";

/// Writes any other document, unless the stored one has a higher number, or the same number and a
/// later date.
pub(super) const WRITE: &str = "INSERT INTO documents \
     (kind, key, number, issued, until, headers, body, fetched_at) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
     ON CONFLICT (kind, key) DO UPDATE SET number = excluded.number, issued = excluded.issued, \
     until = excluded.until, headers = excluded.headers, body = excluded.body, \
     fetched_at = excluded.fetched_at \
     WHERE (documents.number, documents.issued) <= (excluded.number, excluded.issued)";

pub(super) const DATES: &str =
    "SELECT number, issued, until FROM documents WHERE kind = $1 AND key = $2";

pub(super) const DUE: &str = "SELECT kind, key FROM documents \
     WHERE until <> 0 AND fetched_at < $1 ORDER BY fetched_at LIMIT $2";

pub(super) const COUNT: &str = "SELECT count(*) FROM documents";
