//! From a session and the names of what is to be shown and proven to a disclosure.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    claim::{
        Claim, LeafSecret, TEXT_BYTES_MAX, TextProofs, TreePlace, bytes_context, field_context,
    },
    disclosure::{CLAIMS_MAX, Disclosure},
    field::{Field, Kind},
    fields::{CommittedFields, Reveal, TooManyFields},
    name::{Prove, Show},
    session::{HolderError, Notarised},
    transcript::{CHUNK_BYTES, CommittedDirection, Direction, TranscriptError},
};

/// Parts of header names whose values are secrets.
const SECRET_NAMES: [&str; 9] =
    ["auth", "cookie", "credential", "key", "password", "secret", "session", "signature", "token"];

/// Why a disclosure is not made.
#[derive(Debug, thiserror::Error)]
pub enum DiscloseError {
    /// The session is not what its notary signed.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// A range that the transcript has not.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// More fields than a session has.
    #[error(transparent)]
    Fields(#[from] TooManyFields),
    /// No such field.
    #[error("session has no field {path}; the {} body: {view}", .direction.as_str())]
    NoField {
        /// What was asked for.
        path: String,
        /// Which way its message went.
        direction: Direction,
        /// What became of the message's body.
        view: &'static str,
    },
    /// Whole chunks of the asked bytes would show a secret header field.
    #[error("{} bytes {start}-{end} may hold {path}, which is not to be shown", .direction.as_str())]
    Secret {
        /// Which way they went.
        direction: Direction,
        /// First byte of the chunks.
        start: u64,
        /// The byte after the last one.
        end: u64,
        /// The field.
        path: String,
    },
    /// A predicate over a value that is shown anyway.
    #[error("{path} is shown: a proof about it says nothing more")]
    Pointless {
        /// The field.
        path: String,
    },
    /// A predicate over a field without a committed number or date.
    #[error("{path} holds no number or date that was committed to")]
    NoAmount {
        /// The field.
        path: String,
    },
    /// A predicate that does not hold.
    #[error("{subject} is not so: it cannot be proven")]
    Untrue {
        /// What was to be proven.
        subject: String,
    },
    /// Too many claims, or too long a text.
    #[error("{what} is {got}, wanted at most {limit}")]
    Limit {
        /// Of what there is too much.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// What came.
        got: usize,
    },
    /// A proof could not be made.
    #[error("proof about {subject} could not be made: {reason}")]
    Proof {
        /// What was to be proven.
        subject: String,
        /// Why not.
        reason: String,
    },
    /// A predicate that needs circuits.
    #[error("proof about {subject} needs circuits, which this program was built without")]
    NoCircuits {
        /// What was to be proven.
        subject: String,
    },
}

impl Notarised {
    /// Shows what `show` names, proves what `prove` names, and hides everything else.
    pub fn disclose(
        &self,
        show: &[Show],
        prove: &[Prove],
        texts: Option<&dyn TextProofs>,
    ) -> Result<Disclosure, DiscloseError> {
        self.check()?;
        check_limits(prove)?;
        let mut wanted = self.wanted_values(show)?;
        for path in prove.iter().filter_map(proven_path) {
            let index = self.field(path)?;
            if wanted.insert(index, Reveal::PathOnly) == Some(Reveal::Value) {
                return Err(DiscloseError::Pointless { path: path.into() });
            }
        }
        let committed = CommittedFields::new(&self.seed, &self.fields)?;
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
            disclosure.fields =
                Some(committed.open(wanted.iter().map(|(a, b)| (*a, *b)).collect()));
        }
        for (place, direction) in [Direction::Request, Direction::Response].into_iter().enumerate()
        {
            let bytes = if place == 0 { &self.sent } else { &self.received };
            let committed_bytes = CommittedDirection::new(&self.seed, direction, bytes)?;
            let ranges = ranges_of(show, direction);
            self.keep_secrets(direction, bytes, &ranges, &wanted)?;
            if !ranges.is_empty() {
                disclosure.bytes[place] = Some(committed_bytes.open(&ranges)?);
            }
            if show.contains(&Show::Length(direction)) {
                disclosure.lengths[place] = Some(committed_bytes.open_length());
            }
        }
        for wish in prove {
            let claim = self.claim(wish, &committed, &disclosure, texts)?;
            disclosure.claims.push(claim);
        }
        Ok(disclosure)
    }

    /// The fields that `show` names, with everything below them.
    fn wanted_values(&self, show: &[Show]) -> Result<BTreeMap<usize, Reveal>, DiscloseError> {
        let mut wanted = BTreeMap::new();
        for name in show {
            let Show::Field(path) = name else { continue };
            let index = self.field(path)?;
            wanted.insert(index, Reveal::Value);
            if matches!(self.fields[index].kind, Kind::Array | Kind::Object) {
                let below = format!("{path}/");
                let inside = self.fields.iter().enumerate();
                let inside = inside.filter(|(_, field)| field.path.starts_with(&below));
                wanted.extend(inside.map(|(index, _)| (index, Reveal::Value)));
            }
        }
        Ok(wanted)
    }

    fn field(&self, path: &str) -> Result<usize, DiscloseError> {
        let place = self.fields.iter().position(|field| field.path == path);
        let (direction, view) = match path.starts_with("request.") {
            true => (Direction::Request, self.statement.request_view),
            false => (Direction::Response, self.statement.response_view),
        };
        let view = view.as_str();
        place.ok_or_else(|| DiscloseError::NoField { path: path.into(), direction, view })
    }

    /// Bytes are opened in whole chunks, so a range could show a neighbouring secret: header
    /// fields whose names say so are hidden unless they are named.
    fn keep_secrets(
        &self,
        direction: Direction,
        bytes: &[u8],
        ranges: &[Range<u64>],
        wanted: &BTreeMap<usize, Reveal>,
    ) -> Result<(), DiscloseError> {
        let prefix = format!("{}.header:", direction.as_str());
        for (index, Field { path, value, .. }) in self.fields.iter().enumerate() {
            let Some(name) = path.strip_prefix(&prefix) else { continue };
            let secret = SECRET_NAMES.iter().any(|part| name.contains(part));
            let named = wanted.get(&index) == Some(&Reveal::Value);
            if !secret || named || value.is_empty() {
                continue;
            }
            let holds = |range: &&Range<u64>| overlaps(bytes, &whole_chunks(range), value);
            if let Some(range) = ranges.iter().find(holds) {
                let Range { start, end } = whole_chunks(range);
                return Err(DiscloseError::Secret { direction, start, end, path: path.clone() });
            }
        }
        Ok(())
    }

    fn claim(
        &self,
        wish: &Prove,
        committed: &CommittedFields<'_>,
        disclosure: &Disclosure,
        texts: Option<&dyn TextProofs>,
    ) -> Result<Claim, DiscloseError> {
        let digest = self.statement.digest();
        let subject = proven_subject(wish);
        let failed = |reason: String| DiscloseError::Proof { subject: subject.clone(), reason };
        let untrue = || DiscloseError::Untrue { subject: subject.clone() };
        let circuits = || DiscloseError::NoCircuits { subject: subject.clone() };
        match wish {
            Prove::Compare { path, comparison } => {
                let no_amount = || DiscloseError::NoAmount { path: path.clone() };
                let (amount, blinding) =
                    committed.amount(self.field(path)?).ok_or_else(no_amount)?;
                if !comparison.holds(amount) {
                    return Err(untrue());
                }
                let (field, leaf) = opened(disclosure, path).ok_or_else(no_amount)?;
                let context = field_context(&digest, &leaf);
                let proof = comparison.prove(&context, amount, &blinding);
                let proof = proof.map_err(|error| failed(error.to_string()))?;
                Ok(Claim::Compare { field, comparison: *comparison, proof })
            }
            Prove::BytesContain { direction, text } => {
                let texts = texts.ok_or_else(circuits)?;
                let proof = self.prove_bytes(*direction, text, &digest, texts);
                let proof = proof.ok_or_else(untrue)?.map_err(failed)?;
                Ok(Claim::BytesContain { direction: *direction, text: text.clone(), proof })
            }
        }
    }

    /// `None` where no chunk contains the text.
    fn prove_bytes(
        &self,
        direction: Direction,
        text: &str,
        digest: &[u8; 32],
        texts: &dyn TextProofs,
    ) -> Option<Result<Vec<u8>, String>> {
        let (bytes, signed) = match direction {
            Direction::Request => (&self.sent, &self.statement.request),
            Direction::Response => (&self.received, &self.statement.response),
        };
        let mut chunks = bytes.chunks(CHUNK_BYTES);
        let index = chunks.position(|chunk| find(chunk, text.as_bytes()).is_some())? as u32;
        let committed = CommittedDirection::new(&self.seed, direction, bytes).ok()?;
        let (leaf, siblings) = committed.witness(index)?;
        let (salt, chunk) = (&leaf.salt, &leaf.chunk[..]);
        let secret = LeafSecret { index, salt, chunk, siblings: &siblings };
        let place = TreePlace { direction, depth: signed.depth, root: &signed.root };
        Some(texts.prove_bytes(&bytes_context(digest, direction), place, text, secret))
    }
}

fn check_limits(prove: &[Prove]) -> Result<(), DiscloseError> {
    if prove.len() > CLAIMS_MAX {
        let (limit, got) = (CLAIMS_MAX, prove.len());
        return Err(DiscloseError::Limit { what: "number of predicates", limit, got });
    }
    let texts = prove.iter().filter_map(|wish| match wish {
        Prove::Compare { .. } => None,
        Prove::BytesContain { text, .. } => Some(text.len()),
    });
    match texts.max() {
        Some(got) if got > TEXT_BYTES_MAX => {
            Err(DiscloseError::Limit { what: "length of a text", limit: TEXT_BYTES_MAX, got })
        }
        _ => Ok(()),
    }
}

fn proven_path(wish: &Prove) -> Option<&str> {
    match wish {
        Prove::Compare { path, .. } => Some(path),
        Prove::BytesContain { .. } => None,
    }
}

fn proven_subject(wish: &Prove) -> String {
    match wish {
        Prove::Compare { path, .. } => path.clone(),
        Prove::BytesContain { direction, .. } => format!("{}.bytes", direction.as_str()),
    }
}

/// Place and leaf of a field among the opened ones.
fn opened(disclosure: &Disclosure, path: &str) -> Option<(u32, [u8; 32])> {
    let fields = &disclosure.fields.as_ref()?.fields;
    let place = fields.iter().position(|field| field.path == path)?;
    Some((place as u32, fields[place].leaf()))
}

fn ranges_of(show: &[Show], direction: Direction) -> Vec<Range<u64>> {
    let of_direction = |name: &Show| match name {
        Show::Bytes(way, range) if *way == direction => Some(range.clone()),
        _ => None,
    };
    show.iter().filter_map(of_direction).collect()
}

fn whole_chunks(range: &Range<u64>) -> Range<u64> {
    let chunk = CHUNK_BYTES as u64;
    range.start / chunk * chunk..range.end.div_ceil(chunk).saturating_mul(chunk)
}

/// Whether some occurrence of `value` in `bytes` has a byte in `range`.
fn overlaps(bytes: &[u8], range: &Range<u64>, value: &[u8]) -> bool {
    let before = range.start.saturating_sub(value.len() as u64 - 1);
    let after = range.end.saturating_add(value.len() as u64 - 1).min(bytes.len() as u64);
    let part = bytes.get(before as usize..after as usize);
    part.is_some_and(|part| find(part, value).is_some())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len().max(1)).position(|window| window == wanted)
}
