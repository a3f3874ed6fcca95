//! The tree of all fields of a session, and openings of some of them.

use confide_sigma::{Blinding, Commitment as AmountCommitment};
use confide_transcript::{
    DEPTH_MAX, FormatError, Hash, MerkleTree, OpeningError, Reader, SALT_BYTES, SaltPurpose, Seed,
    Writer, compute_root, read_siblings, write_siblings,
};

use crate::{
    field::{Field, FieldKind, PATH_BYTES_MAX, VALUE_BYTES_MAX, field_leaf, value_digest},
    statement::{FIELDS_DEPTH_MIN, FieldsRoot},
};

/// The greatest number of committed numbers and dates of a direction; later fields have none. One
/// commitment takes some tens of microseconds.
pub(crate) const AMOUNTS_MAX: usize = 256;

/// The greatest number of fields in a session.
pub const FIELDS_MAX: usize = 1 << 16;

/// The greatest number of fields in one opening.
const OPENED_MAX: usize = FIELDS_MAX;

/// Fields with their tree, which notary and holder both compute.
///
/// The leaves are the fields' digests, padded with fillers to a power of two, in ascending order.
/// Without the salts digests look random, so that places do not reveal paths, nor fillers the
/// number of fields.
pub struct CommittedFields<'a> {
    seed: &'a Seed,
    fields: &'a [Field],
    commitments: Vec<Option<[u8; 32]>>,
    /// The place of each field in the tree.
    places: Vec<u32>,
    tree: MerkleTree,
}

/// The error for a session with too many fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session has {got} fields, wanted at most {limit}")]
pub struct TooManyFields {
    /// The greatest number of fields, [`FIELDS_MAX`].
    pub limit: usize,
    /// The number of fields.
    pub got: usize,
}

impl<'a> CommittedFields<'a> {
    /// Commits to `fields`, in this order, under salts and blindings from `seed`.
    ///
    /// # Errors
    ///
    /// [`TooManyFields`] for more than [`FIELDS_MAX`] fields.
    pub fn new(seed: &'a Seed, fields: &'a [Field]) -> Result<Self, TooManyFields> {
        if fields.len() > FIELDS_MAX {
            return Err(TooManyFields { limit: FIELDS_MAX, got: fields.len() });
        }
        let commitments = commit_amounts(seed, fields);
        let count = fields.len().next_power_of_two().max(1 << FIELDS_DEPTH_MIN);
        let mut leaves: Vec<(Hash, usize)> = Vec::with_capacity(count);
        for (index, (field, commitment)) in fields.iter().zip(&commitments).enumerate() {
            let salt = seed.salt(SaltPurpose::FieldValue, index as u32);
            let digest = value_digest(&salt, &field.value);
            let leaf = field_leaf(&field.path, field.kind, &digest, commitment.as_ref());
            leaves.push((leaf, index));
        }
        for filler in fields.len()..count {
            leaves.push((seed.derive(SaltPurpose::FieldFiller, filler as u32), filler));
        }
        leaves.sort_unstable();
        let mut places = vec![0; fields.len()];
        for (place, (_, index)) in leaves.iter().enumerate() {
            if let Some(slot) = places.get_mut(*index) {
                *slot = place as u32;
            }
        }
        let tree = MerkleTree::new(leaves.into_iter().map(|(leaf, _)| leaf).collect());
        Ok(Self { seed, fields, commitments, places, tree })
    }

    /// The root that the notary signs.
    pub fn root(&self) -> FieldsRoot {
        FieldsRoot { depth: self.tree.leaf_count().ilog2() as u8, root: self.tree.root() }
    }

    /// Opens fields by their index: with their value, or with their path only.
    pub fn open(&self, mut wanted: Vec<(usize, Reveal)>) -> FieldsOpening {
        wanted.retain(|(index, _)| *index < self.fields.len());
        wanted.sort_by_key(|(index, reveal)| (self.places[*index], *reveal));
        // If a field is wanted with and without its value, `Value` is kept: it sorts first.
        wanted.dedup_by_key(|(index, _)| *index);
        let places: Vec<u32> = wanted.iter().map(|(index, _)| self.places[*index]).collect();
        let siblings = if places.is_empty() { vec![] } else { self.tree.siblings(&places) };
        let opened = wanted.into_iter().map(|(index, reveal)| self.open_field(index, reveal));
        FieldsOpening { fields: opened.collect(), siblings }
    }

    /// The committed integer of a field's number or date and its blinding, if it has one.
    pub fn amount(&self, index: usize) -> Option<(u64, Blinding)> {
        self.commitments.get(index).copied().flatten()?;
        Some((self.fields.get(index)?.amount()?, derive_blinding(self.seed, index)))
    }

    /// The salt of a field's value.
    pub(crate) fn salt(&self, index: usize) -> [u8; SALT_BYTES] {
        self.seed.salt(SaltPurpose::FieldValue, index as u32)
    }

    fn open_field(&self, index: usize, reveal: Reveal) -> OpenedField {
        let Field { path, kind, value } = &self.fields[index];
        let salt = self.salt(index);
        OpenedField {
            place: self.places[index],
            path: path.clone(),
            kind: *kind,
            commitment: self.commitments[index],
            value: match reveal {
                Reveal::Value => OpenedValue::Revealed { salt, value: value.clone() },
                Reveal::PathOnly => OpenedValue::Hidden { digest: value_digest(&salt, value) },
            },
        }
    }
}

fn commit_amounts(seed: &Seed, fields: &[Field]) -> Vec<Option<[u8; 32]>> {
    // Each direction has its own limit: a request cannot use up the response's commitments.
    let mut left = [AMOUNTS_MAX; 2];
    let commit = |(index, field): (usize, &Field)| {
        let left = &mut left[usize::from(field.path.starts_with("response."))];
        let amount = field.amount().filter(|_| *left > 0)?;
        *left -= 1;
        Some(AmountCommitment::new(amount, &derive_blinding(seed, index)).to_bytes())
    };
    fields.iter().enumerate().map(commit).collect()
}

fn derive_blinding(seed: &Seed, index: usize) -> Blinding {
    Blinding::from_seed(&seed.derive(SaltPurpose::Blinding, index as u32))
}

/// The parts of a field to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reveal {
    /// Path, kind and value are shown.
    Value,
    /// Only path and kind are shown, for a claim about the value.
    PathOnly,
}

/// A field of an opening.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenedField {
    /// The place of the field in the tree, which is random.
    pub place: u32,
    /// The path of the field.
    pub path: String,
    /// The kind of the value.
    pub kind: FieldKind,
    /// The commitment to the field's number or date, if it has one.
    pub commitment: Option<[u8; 32]>,
    /// The value, or its digest.
    pub value: OpenedValue,
}

/// The value of an opened field, or its digest.
#[derive(Clone, PartialEq, Eq)]
pub enum OpenedValue {
    /// The value is shown.
    Revealed {
        /// The salt of the value, 16 bytes.
        salt: [u8; SALT_BYTES],
        /// The canonical value.
        value: Vec<u8>,
    },
    /// The value stays hidden: only its digest is shown.
    Hidden {
        /// The salted digest of the value.
        digest: [u8; 32],
    },
}

impl OpenedValue {
    /// SHA-256(0x03 ‖ salt ‖ value).
    pub(crate) fn digest(&self) -> [u8; 32] {
        match self {
            OpenedValue::Revealed { salt, value } => value_digest(salt, value),
            OpenedValue::Hidden { digest } => *digest,
        }
    }
}

impl OpenedField {
    pub(crate) fn leaf(&self) -> Hash {
        field_leaf(&self.path, self.kind, &self.value.digest(), self.commitment.as_ref())
    }
}

impl std::fmt::Debug for OpenedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenedField").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Opened fields, and the nodes that are needed to compute the root from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldsOpening {
    /// The opened fields, in ascending order of their places.
    pub fields: Vec<OpenedField>,
    /// The siblings of the nodes on the paths, in the order of
    /// [`crate::TranscriptOpening::siblings`].
    pub siblings: Vec<[u8; 32]>,
}

impl FieldsOpening {
    /// Checks that these fields belong to a signed root.
    ///
    /// # Errors
    ///
    /// [`OpeningError::Root`] if the fields and siblings do not match the signed root.
    pub fn check(&self, signed: &FieldsRoot) -> Result<(), OpeningError> {
        let opened: Vec<(u32, Hash)> =
            self.fields.iter().map(|field| (field.place, field.leaf())).collect();
        match compute_root(signed.depth, &opened, &self.siblings) == Some(signed.root) {
            true => Ok(()),
            false => Err(OpeningError::Root { what: "fields" }),
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u32(self.fields.len() as u32);
        for field in &self.fields {
            writer.u32(field.place).u8(field.kind as u8).u16_prefixed(field.path.as_bytes());
            match &field.commitment {
                None => writer.u8(0),
                Some(commitment) => writer.u8(1).raw(commitment),
            };
            match &field.value {
                OpenedValue::Hidden { digest } => writer.u8(0).raw(digest),
                OpenedValue::Revealed { salt, value } => writer.u8(1).raw(salt).u32_prefixed(value),
            };
        }
        write_siblings(writer, &self.siblings);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let mut fields = Vec::new();
        for _ in 0..reader.limited_count(OPENED_MAX.min(1 << DEPTH_MAX), "opened fields")? {
            fields.push(read_field(reader)?);
        }
        if fields.windows(2).any(|pair: &[OpenedField]| pair[0].place >= pair[1].place) {
            return Err(FormatError::Order { subject: "opened fields" });
        }
        Ok(Self { fields, siblings: read_siblings(reader)? })
    }
}

fn read_field(reader: &mut Reader<'_>) -> Result<OpenedField, FormatError> {
    let place = reader.u32("place of a field")?;
    let (path, kind) = read_path_and_kind(reader)?;
    let commitment = match reader.presence_flag("commitment to a number")? {
        true => Some(reader.array("commitment to a number")?),
        false => None,
    };
    let value = match reader.presence_flag("value of a field")? {
        false => OpenedValue::Hidden { digest: reader.array("digest of a value")? },
        true => {
            let salt = reader.array("salt of a value")?;
            let value = reader.u32_prefixed(VALUE_BYTES_MAX, "value of a field")?.to_vec();
            check_value(kind, &value)?;
            OpenedValue::Revealed { salt, value }
        }
    };
    Ok(OpenedField { place, path, kind, commitment, value })
}

/// Reads the kind and the path of a field.
pub(crate) fn read_path_and_kind(
    reader: &mut Reader<'_>,
) -> Result<(String, FieldKind), FormatError> {
    let byte = reader.u8("kind of a field")?;
    let kind = FieldKind::from_byte(byte)
        .ok_or(FormatError::Value { subject: "kind of a field", got: byte.into() })?;
    Ok((reader.text(PATH_BYTES_MAX, "path of a field")?.into(), kind))
}

/// Checks that the value of a text is UTF-8, so that it can be shown unchanged.
pub(crate) fn check_value(kind: FieldKind, value: &[u8]) -> Result<(), FormatError> {
    let text = !matches!(kind, FieldKind::Octets | FieldKind::Object);
    match text && std::str::from_utf8(value).is_err() {
        true => Err(FormatError::Text { subject: "value of a field" }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &str, kind: FieldKind, value: &str) -> Field {
        Field { path: path.into(), kind, value: value.into() }
    }

    fn fields() -> Vec<Field> {
        vec![
            field("request./model", FieldKind::String, "m"),
            field("response./balance", FieldKind::Number, "5"),
            field("response./note", FieldKind::String, "\"balance\":100"),
            field("response./at", FieldKind::String, "2026-11-22T10:00:00Z"),
        ]
    }

    #[test]
    fn opened_fields_are_under_the_root_and_hidden_ones_show_their_path_only() {
        let (seed, fields) = (Seed::from_bytes([1; 32]), fields());
        let committed = CommittedFields::new(&seed, &fields).unwrap();
        let wanted = vec![(2, Reveal::Value), (1, Reveal::PathOnly), (2, Reveal::PathOnly)];
        let opening = committed.open(wanted);
        assert_eq!(opening.fields.len(), 2);
        opening.check(&committed.root()).unwrap();
        let mut writer = Writer::default();
        opening.write(&mut writer);
        let bytes = writer.finish();
        assert!(!bytes.windows(5).any(|window| window == b"model"));
        let mut reader = Reader::new(&bytes, b"", "").unwrap();
        assert_eq!(FieldsOpening::read(&mut reader), Ok(opening));
        // Fillers hide the number of fields.
        assert_eq!(committed.root().depth, FIELDS_DEPTH_MIN);
    }

    #[test]
    fn an_edited_value_path_kind_commitment_or_place_is_not_under_the_root() {
        let (seed, fields) = (Seed::from_bytes([1; 32]), fields());
        let committed = CommittedFields::new(&seed, &fields).unwrap();
        let good = committed.open(vec![(1, Reveal::Value), (2, Reveal::Value)]);
        let place = good.fields.iter().position(|field| field.path.ends_with("balance")).unwrap();
        let changes: [fn(&mut OpenedField); 6] = [
            |f| f.value = OpenedValue::Revealed { salt: [0; 16], value: b"5".to_vec() },
            |f| {
                if let OpenedValue::Revealed { value, .. } = &mut f.value {
                    *value = b"100".to_vec();
                }
            },
            |f| f.path = "response./total".into(),
            |f| f.kind = FieldKind::String,
            |f| f.commitment = None,
            |f| f.place ^= 1,
        ];
        for change in changes {
            let mut changed = good.clone();
            change(&mut changed.fields[place]);
            assert!(changed.check(&committed.root()).is_err());
        }
        // A string that looks like a field: its bytes are right, but its path is not.
        let mut posing = committed.open(vec![(2, Reveal::Value)]);
        posing.fields[0].path = "response./balance".into();
        assert!(posing.check(&committed.root()).is_err());
        assert!(FieldsOpening::default().check(&committed.root()).is_err());
    }

    #[test]
    fn numbers_and_dates_are_committed_up_to_a_limit() {
        let seed = Seed::from_bytes([1; 32]);
        let few = fields();
        let committed = CommittedFields::new(&seed, &few).unwrap();
        assert!(committed.amount(0).is_none() && committed.amount(2).is_none());
        for index in [1, 3] {
            let (amount, blinding) = committed.amount(index).unwrap();
            let commitment = committed.commitments[index].unwrap();
            assert_eq!(AmountCommitment::new(amount, &blinding).to_bytes(), commitment);
        }
        let mut many = vec![field("request./n", FieldKind::Number, "1"); AMOUNTS_MAX + 1];
        many.push(field("response./n", FieldKind::Number, "1"));
        let committed = CommittedFields::new(&seed, &many).unwrap();
        assert!(committed.amount(AMOUNTS_MAX - 1).is_some());
        assert!(committed.amount(AMOUNTS_MAX).is_none());
        assert!(committed.amount(AMOUNTS_MAX + 1).is_some());
    }
}
