//! Secret values, which are recognised by their names and shown only if the holder names them.

use confide_transcript::Direction;
use std::ops::Range;

use crate::field::Field;

/// Parts of names of header fields and query parameters whose values are secrets.
const SECRET_NAMES: [&str; 12] = [
    "auth",
    "cookie",
    "credential",
    "jwt",
    "key",
    "passphrase",
    "password",
    "secret",
    "session",
    "sig",
    "token",
    "bearer",
];

/// A secret value in the bytes of a direction.
pub(crate) struct SecretValue<'a> {
    /// The index of the field that contains it.
    pub(crate) field: usize,
    /// The bytes of the secret, never empty.
    value: &'a [u8],
}

impl SecretValue<'_> {
    /// Whether an occurrence of the secret in `bytes` overlaps `range`.
    pub(crate) fn overlaps_range(&self, bytes: &[u8], range: &Range<u64>) -> bool {
        let more = self.value.len() as u64 - 1;
        let (before, after) = (range.start.saturating_sub(more), range.end.saturating_add(more));
        let part = bytes.get(before as usize..after.min(bytes.len() as u64) as usize);
        part.is_some_and(|part| part.windows(self.value.len()).any(|window| window == self.value))
    }
}

/// Finds the secrets of a direction: header fields, and parameters of a request's query.
pub(crate) fn find_secrets(direction: Direction, fields: &[Field]) -> Vec<SecretValue<'_>> {
    let prefix = format!("{}.", direction.as_str());
    let mut secrets = Vec::new();
    for (field, Field { path, value, .. }) in fields.iter().enumerate() {
        let Some(part) = path.strip_prefix(&prefix) else { continue };
        let of = |value| SecretValue { field, value };
        match part.strip_prefix("header:") {
            Some(name) if is_secret_name(name) => secrets.push(of(value.as_slice())),
            None if part == "target" => secrets.extend(query_secrets(value).map(of)),
            _ => {}
        }
    }
    secrets.retain(|secret| !secret.value.is_empty());
    secrets
}

/// The values of query parameters whose names mark them as secret.
fn query_secrets(target: &[u8]) -> impl Iterator<Item = &[u8]> {
    let query =
        target.iter().position(|byte| *byte == b'?').map_or(&[][..], |at| &target[at + 1..]);
    let parameters = query.split(|byte| matches!(byte, b'&' | b';'));
    parameters.filter_map(|parameter| {
        let at = parameter.iter().position(|byte| *byte == b'=')?;
        let name = String::from_utf8_lossy(&parameter[..at]).to_ascii_lowercase();
        is_secret_name(&name).then_some(&parameter[at + 1..])
    })
}

fn is_secret_name(name: &str) -> bool {
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldKind;

    #[test]
    fn header_fields_and_parameters_are_secret_by_their_names() {
        let target = "/v1?alt=sse&key=in-query&X-Signature=by-hand&token=&TOKEN=2";
        let fields: Vec<Field> = [
            ("request.target", target),
            ("request.header:x-api-key", "in-header"),
            ("request.header:accept", "plain"),
            ("request.header:cookie", ""),
            ("request./key", "in-body"),
            ("response.header:set-cookie[0]", "of-response"),
        ]
        .map(|(path, value)| Field {
            path: path.into(),
            kind: FieldKind::String,
            value: value.into(),
        })
        .into();
        let found: Vec<(usize, &[u8])> = find_secrets(Direction::Request, &fields)
            .iter()
            .map(|it| (it.field, it.value))
            .collect();
        let wanted = [(0, &b"in-query"[..]), (0, b"by-hand"), (0, b"2"), (1, b"in-header")];
        assert_eq!(found, wanted);
        let response = find_secrets(Direction::Response, &fields);
        assert_eq!(response.len(), 1);
        assert_eq!(response[0].field, 5);
    }

    #[test]
    fn a_secret_is_found_where_a_byte_of_it_is() {
        let secret = SecretValue { field: 0, value: b"abc" };
        let bytes = b"....abc....";
        for (range, wanted) in [(0..4, false), (0..5, true), (6..7, true), (7..11, false)] {
            assert_eq!(secret.overlaps_range(bytes, &range), wanted, "{range:?}");
        }
        assert!(
            !secret.overlaps_range(bytes, &(100..200))
                && secret.overlaps_range(bytes, &(0..u64::MAX))
        );
    }
}
