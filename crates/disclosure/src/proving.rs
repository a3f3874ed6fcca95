//! The holder's side of a claim, which makes it from a predicate, with its proof.

use confide_sigma::{Blinding, Commitment, SigmaError, prove_equal};
use confide_transcript::{CHUNK_BYTES, CommittedDirection, Direction, OpenedLeaf};
use sha2::{Digest, Sha256};

use crate::{
    binding::{BoundLeaf, bytes_context, equality_context, field_context, text_context},
    comparison::Comparison,
    disclose_error::DiscloseError,
    disclosure::{Claim, Disclosure, OtherField},
    field::{Field, FieldKind, value_digest},
    fields::CommittedFields,
    name::Predicate,
    session::NotarisedSession,
    text::{
        FIELD_TEXT_BYTES_MAX, LeafWitness, SignedTree, TextProofs, TextStatement, TextWitness,
        find_text,
    },
};

/// The back end and the other session that some predicates need.
#[derive(Clone, Copy, Default)]
pub struct DiscloseOptions<'a> {
    /// The back end for predicates about texts; if `None`, they are refused.
    pub texts: Option<&'a dyn TextProofs>,
    /// Another session of the same holder, for predicates that compare numbers of both.
    pub other: Option<&'a NotarisedSession>,
}

/// Makes the claims of one disclosure, whose fields are already opened.
pub(crate) struct Prover<'a> {
    session: CommittedSession<'a>,
    other: Option<CommittedSession<'a>>,
    texts: Option<&'a dyn TextProofs>,
}

/// A session with its disclosure and its committed fields.
struct CommittedSession<'a> {
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
            Some((session, disclosure)) => Some(CommittedSession::new(session, disclosure)?),
            None => None,
        };
        Ok(Self { session: CommittedSession::new(session, disclosure)?, other, texts: means.texts })
    }

    pub(crate) fn prove_claim(&self, wish: &Predicate) -> Result<Claim, DiscloseError> {
        match wish {
            Predicate::Compare { path, comparison } => self.prove_comparison(path, comparison),
            Predicate::BytesContain { direction, text } => {
                let subject = format!("{}.bytes", direction.as_str());
                let proof = self.prove_bytes_contain(*direction, text, &subject)?;
                Ok(Claim::BytesContain { direction: *direction, text: text.clone(), proof })
            }
            Predicate::FieldContains { path, text } => {
                let (field, proof) = self.prove_field_text(path, TextPredicate::Contains(text))?;
                Ok(Claim::FieldContains { field, text: text.clone(), proof })
            }
            Predicate::FieldSha256 { path, sha256 } => {
                let (field, proof) = self.prove_field_text(path, TextPredicate::Sha256(sha256))?;
                Ok(Claim::FieldSha256 { field, sha256: *sha256, proof })
            }
            Predicate::Equal { path, other, in_other_session } => {
                self.prove_equality(path, other, *in_other_session)
            }
        }
    }

    fn prove_comparison(
        &self,
        path: &str,
        comparison: &Comparison,
    ) -> Result<Claim, DiscloseError> {
        let CommittedAmount { field, bound, amount, blinding, .. } =
            self.session.committed_amount(path)?;
        if !comparison.holds(amount) {
            return Err(DiscloseError::FalsePredicate { subject: path.into() });
        }
        let proof = comparison.prove(&field_context(&bound), amount, &blinding);
        let proof = proof.map_err(|error| proof_error(path, error))?;
        Ok(Claim::Compare { field, comparison: *comparison, proof })
    }

    fn prove_equality(
        &self,
        path: &str,
        other: &str,
        in_other_session: bool,
    ) -> Result<Claim, DiscloseError> {
        let one = self.session.committed_amount(path)?;
        let side = if in_other_session { self.other.as_ref() } else { Some(&self.session) };
        let side = side.ok_or_else(|| DiscloseError::NoOther { path: other.into() })?;
        let two = side.committed_amount(other)?;
        if one.amount != two.amount || one.kind != two.kind {
            return Err(DiscloseError::FalsePredicate { subject: format!("{path} == {other}") });
        }
        let context = equality_context(&one.bound, &two.bound);
        let (first, second) = (one.commitment(), two.commitment());
        let proof = prove_equal(&context, (&first, &one.blinding), (&second, &two.blinding));
        let proof = proof.map_err(|error| proof_error(path, error))?.to_vec();
        let other = match in_other_session {
            true => OtherField::OtherSession(two.field),
            false => OtherField::ThisSession(two.field),
        };
        Ok(Claim::Equal { field: one.field, other, proof })
    }

    /// Proves that a direction contains a text, within one chunk if possible, otherwise across two.
    fn prove_bytes_contain(
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
        let untrue = || DiscloseError::FalsePredicate { subject: subject.into() };
        let mut chunks = bytes.chunks(CHUNK_BYTES);
        let within = chunks.position(|chunk| find_text(chunk, text.as_bytes()).is_some());
        let across = || find_text(bytes, text.as_bytes()).map(|place| place / CHUNK_BYTES);
        let index = within.or_else(across).ok_or_else(untrue)? as u32;
        let committed = CommittedDirection::new(seed, direction, bytes)?;
        let witness = |index| committed.witness(index).ok_or_else(untrue);
        let first = witness(index)?;
        let second = if within.is_none() { Some(witness(index + 1)?) } else { None };
        let secret = match &second {
            None => TextWitness::Leaf(leaf_witness(&first)),
            Some(second) => TextWitness::Neighbours([leaf_witness(&first), leaf_witness(second)]),
        };
        let tree = SignedTree { direction, depth: signed.depth, root: &signed.root };
        let context = bytes_context(&self.session.statement, direction);
        self.prove_text(&context, TextStatement::BytesContain { tree, text }, secret, subject)
    }

    /// Makes a proof about a field's text; returns it with the index of the field among the opened
    /// ones.
    fn prove_field_text(
        &self,
        path: &str,
        said: TextPredicate<'_>,
    ) -> Result<(u32, Vec<u8>), DiscloseError> {
        let index = self.session.session.field_index(path)?;
        let no_text = || DiscloseError::NoText { path: path.into(), limit: FIELD_TEXT_BYTES_MAX };
        let (field, bound) = self.session.find_opened(path).ok_or_else(no_text)?;
        let Field { kind, value, .. } = &self.session.session.fields[index];
        if *kind != FieldKind::String || value.len() > FIELD_TEXT_BYTES_MAX {
            return Err(no_text());
        }
        if !said.holds(value) {
            return Err(DiscloseError::FalsePredicate { subject: path.into() });
        }
        let salt = self.session.committed.salt(index);
        let digest = value_digest(&salt, value);
        let secret = TextWitness::Field { salt: &salt, value };
        let statement = match said {
            TextPredicate::Contains(text) => TextStatement::FieldContains { digest: &digest, text },
            TextPredicate::Sha256(sha256) => TextStatement::FieldSha256 { digest: &digest, sha256 },
        };
        Ok((field, self.prove_text(&text_context(&bound), statement, secret, path)?))
    }

    fn prove_text(
        &self,
        context: &[u8; 32],
        statement: TextStatement<'_>,
        secret: TextWitness<'_>,
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
            TextPredicate::Contains(text) => find_text(value, text.as_bytes()).is_some(),
            TextPredicate::Sha256(sha256) => Sha256::digest(value)[..] == sha256[..],
        }
    }
}

/// A committed number of a field, with its blinding.
struct CommittedAmount {
    field: u32,
    kind: FieldKind,
    bound: BoundLeaf,
    amount: u64,
    blinding: Blinding,
}

impl CommittedAmount {
    fn commitment(&self) -> Commitment {
        Commitment::new(self.amount, &self.blinding)
    }
}

impl<'a> CommittedSession<'a> {
    fn new(
        session: &'a NotarisedSession,
        disclosure: &'a Disclosure,
    ) -> Result<Self, DiscloseError> {
        let committed = CommittedFields::new(&session.seed, &session.fields)?;
        Ok(Self { session, disclosure, statement: session.statement.digest(), committed })
    }

    fn committed_amount(&self, path: &str) -> Result<CommittedAmount, DiscloseError> {
        let index = self.session.field_index(path)?;
        let no_amount = || DiscloseError::NoAmount { path: path.into() };
        let (amount, blinding) = self.committed.amount(index).ok_or_else(no_amount)?;
        let (field, bound) = self.find_opened(path).ok_or_else(no_amount)?;
        Ok(CommittedAmount {
            field,
            kind: self.session.fields[index].kind,
            bound,
            amount,
            blinding,
        })
    }

    /// The index of a field among the opened ones, and its bound leaf.
    fn find_opened(&self, path: &str) -> Option<(u32, BoundLeaf)> {
        let fields = &self.disclosure.fields.as_ref()?.fields;
        let place = fields.iter().position(|field| field.path == path)?;
        let bound = BoundLeaf { statement: self.statement, leaf: fields[place].leaf() };
        Some((place as u32, bound))
    }
}

fn leaf_witness((leaf, siblings): &(OpenedLeaf, Vec<[u8; 32]>)) -> LeafWitness<'_> {
    let OpenedLeaf { index, salt, chunk } = leaf;
    LeafWitness { index: *index, salt, chunk, siblings }
}

fn proof_error(subject: &str, error: SigmaError) -> DiscloseError {
    DiscloseError::Proof { subject: subject.into(), reason: error.to_string() }
}
