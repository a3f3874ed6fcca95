//! A document as a row of the databases.

use super::{DatabaseError, schema};
use crate::{document::Document, edition::EditionDates, kind::DocumentKind};

/// A document as a row: the columns of [`schema`], in its order.
pub(super) struct Row {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) number: i64,
    pub(super) issued: i64,
    pub(super) until: i64,
    pub(super) headers: String,
    pub(super) body: Vec<u8>,
    pub(super) fetched_at: i64,
}

impl Row {
    pub(super) fn new(document: Document) -> Self {
        Self {
            kind: document.kind.name().into(),
            key: document.key,
            number: clamp_to_i64(document.dates.number),
            issued: clamp_to_i64(document.dates.issued),
            until: clamp_to_i64(document.dates.until),
            headers: serde_json::to_string(&document.headers).unwrap_or_default(),
            body: document.body,
            fetched_at: clamp_to_i64(document.fetched_at),
        }
    }

    pub(super) fn into_document(self) -> Result<Document, DatabaseError> {
        let headers = serde_json::from_str(&self.headers).ok();
        match (DocumentKind::from_name(&self.kind), headers) {
            (Some(kind), Some(headers)) => Ok(Document {
                kind,
                key: self.key,
                dates: dates_from_columns(self.number, self.issued, self.until),
                headers,
                body: self.body,
                fetched_at: clamp_to_u64(self.fetched_at),
            }),
            _ => Err(DatabaseError::MalformedRow { kind: self.kind, key: self.key }),
        }
    }
}

pub(super) fn sql_for_write(kind: DocumentKind) -> &'static str {
    if kind.is_revocation_list() { schema::WRITE_LIST } else { schema::WRITE }
}

/// The migrations that a database of this version still needs, each with its resulting version.
pub(super) fn missing_migrations(
    version: Option<i64>,
) -> Result<impl Iterator<Item = (i64, &'static (&'static str, &'static str))>, DatabaseError> {
    let (got, wanted) = (version.unwrap_or(0), clamp_to_i64(schema::MIGRATIONS.len() as u64));
    if !(0..=wanted).contains(&got) {
        return Err(DatabaseError::NewerSchema { wanted, got });
    }
    Ok((1..).zip(schema::MIGRATIONS).skip_while(move |(step, _)| *step <= got))
}

pub(super) fn dates_from_columns(number: i64, issued: i64, until: i64) -> EditionDates {
    let [number, issued, until] = [number, issued, until].map(clamp_to_u64);
    EditionDates { number, issued, until }
}

/// Converts to a signed number, as SQL has no others. A number above the largest one becomes that
/// one, so that no smaller one replaces it.
pub(super) fn clamp_to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn clamp_to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
