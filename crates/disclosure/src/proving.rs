//! The holder's side of a claim: makes it from a predicate, with its proof.

use confide_sigma::{Blinding, Commitment, SigmaError, prove_equal};
use sha2::{Digest, Sha256};

use crate::{
    binding::{Bound, bytes_context, equal_context, field_context, text_context},
    comparison::Comparison,
    disclose_error::DiscloseError,
    disclosure::{Claim, Disclosure, OtherField},
    field::{Field, FieldKind, value_digest},
    fields::CommittedFields,
    name::Predicate,
    session::NotarisedSession,
    text::{
        FIELD_TEXT_BYTES_MAX, LeafSecret, TextProofs, TextSecret, TextStatement, TreePlace, find,
    },
    transcript::{CHUNK_BYTES, CommittedDirection, Direction, OpenedLeaf},
};

/// Back ends and sessions that some predicates need.
#[derive(Clone, Copy, Default)]
pub struct DiscloseOptions<'a> {
    /// The back end for predicates about texts; without it they are refused.
    pub texts: Option<&'a dyn TextProofs>,
    /// Another session of the same holder, for predicates that compare numbers of both.
    pub other: Option<&'a NotarisedSession>,
}

/// Makes the claims of one disclosure, whose fields are opened already.
pub(crate) struct Prover<'a> {
    session: ProvedSession<'a>,
    other: Option<ProvedSession<'a>>,
    texts: Option<&'a dyn TextProofs>,
}

/// A session with its disclosure.
struct ProvedSession<'a> {
    session: &'a NotarisedSession,
    disclosure: &'a Disclosure,
    statement: [u8; 32],
    committed: CommittedFields<'a>,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(
        session: &'a NotarisedSession,
        disclosure: &'a Disclosure,
        means: DiscloseOptions<'a>,
    ) -> Result<Self, DiscloseError> {
        let other = match means.other.zip(disclosure.other_session()) {
            Some((session, disclosure)) => Some(ProvedSession::new(session, disclosure)?),
            None => None,
        };
        Ok(Self { session: ProvedSession::new(session, disclosure)?, other, texts: means.texts })
    }

    pub(crate) fn claim(&self, wish: &Predicate) -> Result<Claim, DiscloseError> {
        match wish {
            Predicate::Compare { path, comparison } => self.compare(path, comparison),
            Predicate::BytesContain { direction, text } => {
                let subject = format!("{}.bytes", direction.as_str());
                let proof = self.bytes_contain(*direction, text, &subject)?;
                Ok(Claim::BytesContain { direction: *direction, text: text.clone(), proof })
            }
            Predicate::FieldContains { path, text } => {
                let (field, proof) = self.field_text(path, TextPredicate::Contains(text))?;
                Ok(Claim::FieldContains { field, text: text.clone(), proof })
            }
            Predicate::FieldSha256 { path, sha256 } => {
                let (field, proof) = self.field_text(path, TextPredicate::Sha256(sha256))?;
                Ok(Claim::FieldSha256 { field, sha256: *sha256, proof })
            }
            Predicate::Equal { path, other, in_other_session } => {
                self.equal(path, other, *in_other_session)
            }
        }
    }

    fn compare(&self, path: &str, comparison: &Comparison) -> Result<Claim, DiscloseError> {
        let Amount { field, bound, amount, blinding, .. } = self.session.amount(path)?;
        if !comparison.holds(amount) {
            return Err(DiscloseError::Untrue { subject: path.into() });
        }
        let proof = comparison.prove(&field_context(&bound), amount, &blinding);
        let proof = proof.map_err(|error| proof_error(path, error))?;
        Ok(Claim::Compare { field, comparison: *comparison, proof })
    }

    fn equal(
        &self,
        path: &str,
        other: &str,
        in_other_session: bool,
    ) -> Result<Claim, DiscloseError> {
        let one = self.session.amount(path)?;
        let side = if in_other_session { self.other.as_ref() } else { Some(&self.session) };
        let side = side.ok_or_else(|| DiscloseError::NoOther { path: other.into() })?;
        let two = side.amount(other)?;
        if one.amount != two.amount || one.kind != two.kind {
            return Err(DiscloseError::Untrue { subject: format!("{path} == {other}") });
        }
        let context = equal_context(&one.bound, &two.bound);
        let (first, second) = (one.commitment(), two.commitment());
        let proof = prove_equal(&context, (&first, &one.blinding), (&second, &two.blinding));
        let proof = proof.map_err(|error| proof_error(path, error))?.to_vec();
        let other = match in_other_session {
            true => OtherField::OtherSession(two.field),
            false => OtherField::ThisSession(two.field),
        };
        Ok(Claim::Equal { field: one.field, other, proof })
    }

    /// Proves that a direction contains a text, in one chunk if possible, else across two.
    fn bytes_contain(
        &self,
        direction: Direction,
        text: &str,
        subject: &str,
    ) -> Result<Vec<u8>, DiscloseError> {
        let NotarisedSession { sent, received, statement, seed, .. } = self.session.session;
        let (bytes, signed) = match direction {
            Direction::Request => (sent, &statement.request),
            Direction::Response => (received, &statement.response),
        };
        let untrue = || DiscloseError::Untrue { subject: subject.into() };
        let mut chunks = bytes.chunks(CHUNK_BYTES);
        let within = chunks.position(|chunk| find(chunk, text.as_bytes()).is_some());
        let across = || find(bytes, text.as_bytes()).map(|place| place / CHUNK_BYTES);
        let index = within.or_else(across).ok_or_else(untrue)? as u32;
        let committed = CommittedDirection::new(seed, direction, bytes)?;
        let witness = |index| committed.witness(index).ok_or_else(untrue);
        let first = witness(index)?;
        let second = if within.is_none() { Some(witness(index + 1)?) } else { None };
        let secret = match &second {
            None => TextSecret::Leaf(leaf_secret(&first)),
            Some(second) => TextSecret::Neighbours([leaf_secret(&first), leaf_secret(second)]),
        };
        let tree = TreePlace { direction, depth: signed.depth, root: &signed.root };
        let context = bytes_context(&self.session.statement, direction);
        self.text_proof(&context, TextStatement::BytesContain { tree, text }, secret, subject)
    }

    /// Makes a proof about a field's text; returns it with the place of the field among the opened
    /// ones.
    fn field_text(
        &self,
        path: &str,
        said: TextPredicate<'_>,
    ) -> Result<(u32, Vec<u8>), DiscloseError> {
        let index = self.session.session.field(path)?;
        let no_text = || DiscloseError::NoText { path: path.into(), limit: FIELD_TEXT_BYTES_MAX };
        let (field, bound) = self.session.find_opened(path).ok_or_else(no_text)?;
        let Field { kind, value, .. } = &self.session.session.fields[index];
        if *kind != FieldKind::String || value.len() > FIELD_TEXT_BYTES_MAX {
            return Err(no_text());
        }
        if !said.holds(value) {
            return Err(DiscloseError::Untrue { subject: path.into() });
        }
        let salt = self.session.committed.salt(index);
        let digest = value_digest(&salt, value);
        let secret = TextSecret::Field { salt: &salt, value };
        let statement = match said {
            TextPredicate::Contains(text) => TextStatement::FieldContains { digest: &digest, text },
            TextPredicate::Sha256(sha256) => TextStatement::FieldSha256 { digest: &digest, sha256 },
        };
        Ok((field, self.text_proof(&text_context(&bound), statement, secret, path)?))
    }

    fn text_proof(
        &self,
        context: &[u8; 32],
        statement: TextStatement<'_>,
        secret: TextSecret<'_>,
        subject: &str,
    ) -> Result<Vec<u8>, DiscloseError> {
        let circuits = || DiscloseError::NoCircuits { subject: subject.into() };
        let proof = self.texts.ok_or_else(circuits)?.prove(context, &statement, &secret);
        proof.map_err(|reason| DiscloseError::Proof { subject: subject.into(), reason })
    }
}

/// A predicate about a field's text.
#[derive(Clone, Copy)]
enum TextPredicate<'a> {
    Contains(&'a str),
    Sha256(&'a [u8; 32]),
}

impl TextPredicate<'_> {
    fn holds(&self, value: &[u8]) -> bool {
        match self {
            TextPredicate::Contains(text) => find(value, text.as_bytes()).is_some(),
            TextPredicate::Sha256(sha256) => Sha256::digest(value)[..] == sha256[..],
        }
    }
}

/// A committed number of a field, with its blinding.
struct Amount {
    field: u32,
    kind: FieldKind,
    bound: Bound,
    amount: u64,
    blinding: Blinding,
}

impl Amount {
    fn commitment(&self) -> Commitment {
        Commitment::new(self.amount, &self.blinding)
    }
}

impl<'a> ProvedSession<'a> {
    fn new(
        session: &'a NotarisedSession,
        disclosure: &'a Disclosure,
    ) -> Result<Self, DiscloseError> {
        let committed = CommittedFields::new(&session.seed, &session.fields)?;
        Ok(Self { session, disclosure, statement: session.statement.digest(), committed })
    }

    fn amount(&self, path: &str) -> Result<Amount, DiscloseError> {
        let index = self.session.field(path)?;
        let no_amount = || DiscloseError::NoAmount { path: path.into() };
        let (amount, blinding) = self.committed.amount(index).ok_or_else(no_amount)?;
        let (field, bound) = self.find_opened(path).ok_or_else(no_amount)?;
        Ok(Amount { field, kind: self.session.fields[index].kind, bound, amount, blinding })
    }

    /// The place of a field among the opened ones, and its binding.
    fn find_opened(&self, path: &str) -> Option<(u32, Bound)> {
        let fields = &self.disclosure.fields.as_ref()?.fields;
        let place = fields.iter().position(|field| field.path == path)?;
        let bound = Bound { statement: self.statement, leaf: fields[place].leaf() };
        Some((place as u32, bound))
    }
}

fn leaf_secret((leaf, siblings): &(OpenedLeaf, Vec<[u8; 32]>)) -> LeafSecret<'_> {
    let OpenedLeaf { index, salt, chunk } = leaf;
    LeafSecret { index: *index, salt, chunk, siblings }
}

fn proof_error(subject: &str, error: SigmaError) -> DiscloseError {
    DiscloseError::Proof { subject: subject.into(), reason: error.to_string() }
}
