//! Makes a disclosure from a session, the parts to show and the predicates to prove.

use confide_transcript::{CHUNK_BYTES, CommittedDirection, Direction};
use std::{collections::BTreeMap, ops::Range};

use crate::{
    disclose_error::DiscloseError,
    disclosure::{CLAIMS_MAX, Claim, Disclosure, TEXT_CLAIMS_MAX},
    field::FieldKind,
    fields::{CommittedFields, Reveal},
    name::{Predicate, Selector},
    proving::{DiscloseOptions, Prover},
    secrets::find_secrets,
    session::NotarisedSession,
    text::TEXT_BYTES_MAX,
};

impl NotarisedSession {
    /// Shows the parts in `show`, proves the predicates in `prove`, and hides everything else.
    ///
    /// # Errors
    ///
    /// [`DiscloseError::Session`] if the session does not match its notary's signature;
    /// [`DiscloseError::NoField`] and [`DiscloseError::Transcript`] if a name or a byte range does
    /// not exist; [`DiscloseError::Secret`] if a byte range would show a secret;
    /// [`DiscloseError::FalsePredicate`] if a predicate is false; [`DiscloseError::NoAmount`] and
    /// [`DiscloseError::NoText`] if its field has no number, date or text;
    /// [`DiscloseError::AlreadyShown`], [`DiscloseError::SameField`],
    /// [`DiscloseError::SameSession`] and [`DiscloseError::NoOther`] if a predicate proves nothing
    /// new or its other session is missing; [`DiscloseError::Limit`] beyond the number of claims or
    /// the length of a text; [`DiscloseError::NoCircuits`] without [`DiscloseOptions::texts`];
    /// [`DiscloseError::Proof`] if a back end fails.
    pub fn disclose(
        &self,
        show: &[Selector],
        prove: &[Predicate],
        means: DiscloseOptions<'_>,
    ) -> Result<Disclosure, DiscloseError> {
        self.check()?;
        check_predicate_limits(prove)?;
        self.check_equalities(prove, means.other)?;
        let mut wanted = self.selected_fields(show)?;
        for path in prove.iter().flat_map(predicate_paths) {
            let index = self.field_index(path)?;
            if wanted.insert(index, Reveal::PathOnly) == Some(Reveal::Value) {
                return Err(DiscloseError::AlreadyShown { path: path.into() });
            }
        }
        let mut disclosure = self.open_fields(&wanted)?;
        for (place, direction) in [Direction::Request, Direction::Response].into_iter().enumerate()
        {
            let bytes = if place == 0 { &self.sent } else { &self.received };
            let committed_bytes = CommittedDirection::new(&self.seed, direction, bytes)?;
            let ranges = selected_ranges(show, direction);
            self.refuse_shown_secrets(direction, bytes, &ranges, &wanted)?;
            if !ranges.is_empty() {
                disclosure.bytes[place] = Some(committed_bytes.open(&ranges)?);
            }
            if show.contains(&Selector::Length(direction)) {
                disclosure.lengths[place] = Some(committed_bytes.open_length());
            }
        }
        if let Some(other) = disclose_other_session(prove, means.other)? {
            disclosure.claims.push(Claim::OtherSession(Box::new(other)));
        }
        let prover = Prover::new(self, &disclosure, means)?;
        let claims: Result<Vec<_>, _> = prove.iter().map(|wish| prover.prove_claim(wish)).collect();
        disclosure.claims.extend(claims?);
        Ok(disclosure)
    }

    /// Checks that every equality compares two different fields of one session or of two sessions.
    fn check_equalities(
        &self,
        prove: &[Predicate],
        other: Option<&NotarisedSession>,
    ) -> Result<(), DiscloseError> {
        let digest = self.statement.digest();
        if other.is_some_and(|other| other.statement.digest() == digest) {
            return Err(DiscloseError::SameSession { digest: hex::encode(digest) });
        }
        let of_itself = prove.iter().find_map(|wish| match wish {
            Predicate::Equal { path, other, in_other_session: false } if path == other => {
                Some(path)
            }
            _ => None,
        });
        match of_itself {
            Some(path) => Err(DiscloseError::SameField { path: path.clone() }),
            None => Ok(()),
        }
    }

    /// Makes a disclosure that opens only fields.
    fn open_fields(&self, wanted: &BTreeMap<usize, Reveal>) -> Result<Disclosure, DiscloseError> {
        let mut disclosure = Disclosure {
            statement: self.statement.clone(),
            signature: self.signature,
            evidence: self.evidence.clone(),
            bytes: [None, None],
            lengths: [None, None],
            fields: None,
            claims: Vec::new(),
        };
        if !wanted.is_empty() {
            let committed = CommittedFields::new(&self.seed, &self.fields)?;
            let wanted = wanted.iter().map(|(index, reveal)| (*index, *reveal)).collect();
            disclosure.fields = Some(committed.open(wanted));
        }
        Ok(disclosure)
    }

    /// The indices of the fields in `show`, with all fields below them.
    fn selected_fields(&self, show: &[Selector]) -> Result<BTreeMap<usize, Reveal>, DiscloseError> {
        let mut wanted = BTreeMap::new();
        for name in show {
            let Selector::Field(path) = name else { continue };
            let index = self.field_index(path)?;
            wanted.insert(index, Reveal::Value);
            if matches!(self.fields[index].kind, FieldKind::Array | FieldKind::Object) {
                let below = format!("{path}/");
                let inside = self.fields.iter().enumerate();
                let inside = inside.filter(|(_, field)| field.path.starts_with(&below));
                wanted.extend(inside.map(|(index, _)| (index, Reveal::Value)));
            }
        }
        Ok(wanted)
    }

    pub(crate) fn field_index(&self, path: &str) -> Result<usize, DiscloseError> {
        let place = self.fields.iter().position(|field| field.path == path);
        let (direction, view) = match path.starts_with("request.") {
            true => (Direction::Request, self.statement.request_view),
            false => (Direction::Response, self.statement.response_view),
        };
        let view = view.as_str();
        place.ok_or_else(|| DiscloseError::NoField { path: path.into(), direction, view })
    }

    /// Refuses byte ranges that show a secret. Bytes are opened in whole chunks, which may include
    /// a neighbouring secret: header fields and parameters whose names mark them as secret are
    /// shown only if `show` names their field.
    fn refuse_shown_secrets(
        &self,
        direction: Direction,
        bytes: &[u8],
        ranges: &[Range<u64>],
        wanted: &BTreeMap<usize, Reveal>,
    ) -> Result<(), DiscloseError> {
        let named = |index| wanted.get(&index) == Some(&Reveal::Value);
        let of_direction = find_secrets(direction, &self.fields);
        for secret in of_direction.iter().filter(|secret| !named(secret.field)) {
            let holds =
                |range: &&Range<u64>| secret.overlaps_range(bytes, &extend_to_chunks(range));
            if let Some(range) = ranges.iter().find(holds) {
                let Range { start, end } = extend_to_chunks(range);
                let path = self.fields[secret.field].path.clone();
                return Err(DiscloseError::Secret { direction, start, end, path });
            }
        }
        Ok(())
    }
}

/// Makes the other session's disclosure, which shows the paths of the fields in equalities.
fn disclose_other_session(
    prove: &[Predicate],
    other: Option<&NotarisedSession>,
) -> Result<Option<Disclosure>, DiscloseError> {
    let named = prove.iter().filter_map(|wish| match wish {
        Predicate::Equal { other, in_other_session: true, .. } => Some(other),
        _ => None,
    });
    let mut wanted = BTreeMap::new();
    for path in named {
        let other = other.ok_or_else(|| DiscloseError::NoOther { path: path.clone() })?;
        wanted.insert(other.field_index(path)?, Reveal::PathOnly);
    }
    match other.filter(|_| !wanted.is_empty()) {
        None => Ok(None),
        Some(other) => {
            other.check()?;
            other.open_fields(&wanted).map(Some)
        }
    }
}

fn check_predicate_limits(prove: &[Predicate]) -> Result<(), DiscloseError> {
    let check = |what, limit, got| match got > limit {
        true => Err(DiscloseError::Limit { what, limit, got }),
        false => Ok(()),
    };
    // The other session's disclosure is a claim too.
    check("number of predicates", CLAIMS_MAX - 1, prove.len())?;
    let about_texts =
        |wish: &&Predicate| !matches!(wish, Predicate::Compare { .. } | Predicate::Equal { .. });
    let texts = prove.iter().filter(about_texts).count();
    check("number of predicates about texts", TEXT_CLAIMS_MAX, texts)?;
    let lengths = prove.iter().filter_map(|wish| match wish {
        Predicate::BytesContain { text, .. } | Predicate::FieldContains { text, .. } => {
            Some(text.len())
        }
        _ => None,
    });
    check("length of a text", TEXT_BYTES_MAX, lengths.max().unwrap_or(0))
}

/// The paths of the fields of this session that a predicate is about.
fn predicate_paths(wish: &Predicate) -> Vec<&str> {
    match wish {
        Predicate::BytesContain { .. } => vec![],
        Predicate::Compare { path, .. }
        | Predicate::FieldContains { path, .. }
        | Predicate::FieldSha256 { path, .. }
        | Predicate::Equal { path, in_other_session: true, .. } => vec![path.as_str()],
        Predicate::Equal { path, other, in_other_session: false } => {
            vec![path.as_str(), other.as_str()]
        }
    }
}

fn selected_ranges(show: &[Selector], direction: Direction) -> Vec<Range<u64>> {
    let of_direction = |name: &Selector| match name {
        Selector::Bytes(way, range) if *way == direction => Some(range.clone()),
        _ => None,
    };
    show.iter().filter_map(of_direction).collect()
}

fn extend_to_chunks(range: &Range<u64>) -> Range<u64> {
    let chunk = CHUNK_BYTES as u64;
    range.start / chunk * chunk..range.end.div_ceil(chunk).saturating_mul(chunk)
}
