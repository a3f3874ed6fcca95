//! Names, claims and foreign texts, as they may be printed on a terminal.

use confide_disclosure::{Direction, ProvenClaim, ProvenFact, ShownBytes};

use crate::printable::to_printable;

/// The path that a claim is about, and its predicate.
pub(crate) fn describe_claim(claim: &ProvenClaim) -> (String, String) {
    let contains = |text: &str| format!("\"{}\"", to_printable(text));
    match &claim.fact {
        ProvenFact::Compare { path, kind, comparison } => {
            (path.clone(), comparison.describe(*kind))
        }
        ProvenFact::BytesContain { direction, text } => {
            let path = format!("{}.bytes", direction.as_str());
            (path, format!("contains {}", contains(text)))
        }
        ProvenFact::FieldContains { path, text } => {
            (path.clone(), format!("contains {}", contains(text)))
        }
        ProvenFact::FieldSha256 { path, sha256 } => {
            (format!("sha256({path})"), format!("== {}", hex::encode(sha256)))
        }
        ProvenFact::Equal { path, other, in_other_session } => {
            let whose = if *in_other_session { "other." } else { "" };
            (path.clone(), format!("== {whose}{}", format_name(other)))
        }
    }
}

/// The name of shown bytes: their direction and range.
pub(crate) fn shown_bytes_name(direction: Direction, piece: &ShownBytes) -> String {
    let (start, end) = (piece.start, piece.start + piece.bytes.len() as u64);
    format!("{}.bytes:{start}-{end}", direction.as_str())
}

/// A field's name for a terminal: hosts choose the names of their members. A name with a blank or a
/// sign of a predicate is quoted, so that it is not read as more than a name.
pub(crate) fn format_name(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\=<>".contains(&byte);
    if name.bytes().all(plain) { name.into() } else { format!("\"{}\"", to_printable(name)) }
}
