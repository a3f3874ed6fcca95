//! Claims about texts and equal numbers, with a stand-in for circuits.

use confide_sigma::{LinearRelation, Range};
use confide_transcript::FormatError;
use sha2::{Digest, Sha256};

use super::{
    tests::{prove, session, session_at, show},
    *,
};
use crate::{
    ProofSecurity,
    disclose_error::DiscloseError,
    disclosure::{Claim, DISCLOSURE_MAGIC, OtherField, TEXT_CLAIMS_MAX},
    proven::ProvenFact,
    proving::{DiscloseOptions, Prover},
    session::NotarisedSession,
    text::{TextProofs, TextStatement, TextWitness},
};

/// A back end that proves nothing: its proof is a hash of the context and the statement.
struct StandIn;

const STAND_IN: ProofSecurity =
    ProofSecurity { back_end: "a stand-in", zero_knowledge: false, ..Range::SECURITY };

fn stand_in_proof(context: &[u8; 32], statement: &TextStatement<'_>) -> Vec<u8> {
    Sha256::digest(format!("{context:?} {statement:?}")).to_vec()
}

impl TextProofs for StandIn {
    fn prove(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        secret: &TextWitness<'_>,
    ) -> Result<Vec<u8>, String> {
        let holds = match (statement, secret) {
            (TextStatement::BytesContain { text, .. }, TextWitness::Leaf(leaf)) => {
                String::from_utf8_lossy(leaf.chunk).contains(text)
            }
            (TextStatement::BytesContain { text, .. }, TextWitness::Neighbours([one, two])) => {
                let both = [one.chunk, two.chunk].concat();
                one.index + 1 == two.index && String::from_utf8_lossy(&both).contains(text)
            }
            (
                TextStatement::FieldContains { digest, .. }
                | TextStatement::FieldSha256 { digest, .. },
                TextWitness::Field { salt, value },
            ) => crate::field::value_digest(salt, value) == **digest,
            _ => false,
        };
        holds.then(|| stand_in_proof(context, statement)).ok_or_else(|| "it is not so".into())
    }

    fn verify(
        &self,
        context: &[u8; 32],
        statement: &TextStatement<'_>,
        proof: &[u8],
    ) -> Result<ProofSecurity, String> {
        match proof == stand_in_proof(context, statement) {
            true => Ok(STAND_IN),
            false => Err("another statement".into()),
        }
    }
}

fn means(other: Option<&NotarisedSession>) -> DiscloseOptions<'_> {
    DiscloseOptions { texts: Some(&StandIn), other }
}

fn disclose_claims(
    session: &NotarisedSession,
    wishes: &[&str],
) -> Result<Disclosure, DiscloseError> {
    session.disclose(&show(&[]), &prove(wishes), means(None))
}

/// The text across byte 64 of the response, which begins `HTTP/1.1 200
/// OK\r\n\r\n{"model":"m-1","created":…`.
fn across(session: &NotarisedSession) -> String {
    String::from_utf8_lossy(&session.received[58..70]).into_owned()
}

#[test]
fn texts_of_bytes_and_fields_are_proven_and_their_back_end_says_what_they_rest_on() {
    let session = session(1);
    let digest = hex::encode(Sha256::digest(b"four"));
    let wishes = [
        "response.bytes contains \"m-1\"".to_string(),
        format!("response.bytes contains {}", serde_json::json!(across(&session))),
        "response./choices/0/message/content contains \"ou\"".to_string(),
        format!("sha256(response./choices/0/message/content) == {digest}"),
        "response./balance <= 10".to_string(),
    ];
    let wishes: Vec<&str> = wishes.iter().map(String::as_str).collect();
    let good = disclose_claims(&session, &wishes).unwrap();
    let read = Disclosure::decode(&good.encode()).unwrap();
    assert_eq!(read, good);
    let verified = read.verify(Some(&StandIn)).unwrap();
    assert_eq!(verified.claims().len(), 5);
    assert!(verified.fields().is_empty());
    for (place, proven) in verified.claims().iter().enumerate() {
        let wanted = if place == 4 { Range::SECURITY } else { STAND_IN };
        assert_eq!(proven.security, wanted, "{place}");
    }
    assert!(matches!(read.verify(None), Err(VerifyError::NoCircuits { claim: 0 })));
    // The proof of one claim under another claim.
    for one in 0..4 {
        for two in one + 1..4 {
            let mut swapped = good.clone();
            let proof = |claim: &mut Claim| match claim {
                Claim::BytesContain { proof, .. }
                | Claim::FieldContains { proof, .. }
                | Claim::FieldSha256 { proof, .. } => std::mem::take(proof),
                _ => panic!(),
            };
            let (first, second) =
                (proof(&mut swapped.claims[one]), proof(&mut swapped.claims[two]));
            let put = |claim: &mut Claim, new| match claim {
                Claim::BytesContain { proof, .. }
                | Claim::FieldContains { proof, .. }
                | Claim::FieldSha256 { proof, .. } => *proof = new,
                _ => panic!(),
            };
            put(&mut swapped.claims[one], second);
            put(&mut swapped.claims[two], first);
            let refused = swapped.verify(Some(&StandIn)).unwrap_err();
            assert!(matches!(refused, VerifyError::Proof { .. }), "{one} and {two}: {refused}");
        }
    }
}

#[test]
fn what_is_not_so_or_holds_no_text_is_said_by_name() {
    let session = session(1);
    let refuse = |wish: &str| disclose_claims(&session, &[wish]).unwrap_err();
    let zeros = "0".repeat(64);
    for wish in [
        "response.bytes contains \"nothing of the kind\"",
        "response./choices/0/message/content contains \"five\"",
        &format!("sha256(response./choices/0/message/content) == {zeros}"),
    ] {
        let error = refuse(wish);
        assert!(matches!(error, DiscloseError::FalsePredicate { .. }), "{wish}: {error}");
    }
    for wish in ["response./balance contains \"5\"", "response. contains \"model\""] {
        let error = refuse(wish);
        assert!(matches!(error, DiscloseError::NoText { .. }), "{wish}: {error}");
    }
    let error = refuse(&format!("response./model contains \"{}\"", "x".repeat(65)));
    assert!(matches!(error, DiscloseError::Limit { .. }), "{error}");
    let many = vec!["response./model contains \"m\""; TEXT_CLAIMS_MAX + 1];
    let error = disclose_claims(&session, &many).unwrap_err();
    assert!(matches!(error, DiscloseError::Limit { .. }), "{error}");
    let named = session.disclose(
        &show(&["response./model"]),
        &prove(&["response./model contains \"m\""]),
        means(None),
    );
    assert!(matches!(named, Err(DiscloseError::AlreadyShown { .. })));
}

#[test]
fn a_text_claim_speaks_of_fields_that_hold_text_only() {
    let session = session(1);
    let wishes = ["response./model contains \"m\"", "response./balance <= 10"];
    let mut other = disclose_claims(&session, &wishes).unwrap();
    let Claim::FieldContains { field, .. } = &mut other.claims[0] else { panic!() };
    *field ^= 1;
    assert_eq!(other.verify(Some(&StandIn)).unwrap_err(), VerifyError::InvalidField { claim: 0 });
    // More claims about texts than are read.
    let mut many = disclose_claims(&session, &wishes[..1]).unwrap();
    many.claims = vec![many.claims[0].clone(); TEXT_CLAIMS_MAX + 1];
    let read = Disclosure::decode(&many.encode());
    assert!(matches!(read, Err(FormatError::TooLong { .. })));
}

#[test]
fn equal_numbers_of_one_session_and_of_two_are_proven() {
    let (one, two) = (session(1), session_at(2, 1_795_341_700));
    let wishes =
        ["response./balance == other.response./balance", "response./at == other.response./at"];
    let good = one.disclose(&show(&[]), &prove(&wishes), means(Some(&two))).unwrap();
    let read = Disclosure::decode(&good.encode()).unwrap();
    assert_eq!(read, good);
    let verified = read.verify(None).unwrap();
    let other = verified.other_session().unwrap();
    assert_eq!(other.statement(), &two.statement);
    assert!(other.fields().is_empty() && other.claims().is_empty());
    let path = "response./balance".to_string();
    let fact = ProvenFact::Equal { path: path.clone(), other: path, in_other_session: true };
    assert_eq!(verified.claims()[0].fact, fact);
    assert_eq!(verified.claims()[0].security, LinearRelation::SECURITY);

    let here = disclose_claims(&one, &["response./balance == response./limit"]).unwrap();
    assert!(here.verify(None).unwrap().other_session().is_none());
    let unequal = ["response./balance == response./created", "response./balance == response./at"];
    for wish in unequal {
        let error = disclose_claims(&one, &[wish]).unwrap_err();
        assert!(matches!(error, DiscloseError::FalsePredicate { .. }), "{wish}: {error}");
    }
    let error = disclose_claims(&one, &[wishes[0]]).unwrap_err();
    assert!(matches!(error, DiscloseError::NoOther { .. }), "{error}");
    let missing = ["response./balance == other.response./nothing"];
    let error = one.disclose(&show(&[]), &prove(&missing), means(Some(&two))).unwrap_err();
    assert!(matches!(error, DiscloseError::NoField { .. }), "{error}");
}

#[test]
fn an_equality_holds_for_its_two_fields_and_sessions_only() {
    let (one, two, three) = (session(1), session(2), session(3));
    let wish =
        ["response./balance == other.response./balance", "response./at == other.response./at"];
    let disclose = |session: &NotarisedSession, other| {
        session.disclose(&show(&[]), &prove(&wish), means(Some(other))).unwrap()
    };
    let good = disclose(&one, &two);
    let refused = |changed: &Disclosure| changed.verify(None).unwrap_err();
    // Another session in place of the other one.
    let mut moved = good.clone();
    moved.claims[0] = disclose(&one, &three).claims[0].clone();
    // The fields in another order, so that a number may meet a date.
    assert!(matches!(
        refused(&moved),
        VerifyError::Proof { claim: 1, .. } | VerifyError::InvalidField { .. }
    ));
    // Without the other session.
    let mut alone = good.clone();
    alone.claims.remove(0);
    assert_eq!(refused(&alone), VerifyError::InvalidField { claim: 0 });
    // A field of this session instead of the other's, and a date instead of a number.
    for (place, other) in [
        (1, OtherField::ThisSession(0)),
        (1, OtherField::ThisSession(1)),
        (2, OtherField::OtherSession(9)),
    ] {
        let mut changed = good.clone();
        let Claim::Equal { other: of, .. } = &mut changed.claims[place] else { panic!() };
        *of = other;
        changed.verify(None).unwrap_err();
    }
    let mut swapped = good.clone();
    swapped.claims.swap(1, 2);
    swapped.verify(None).unwrap();
    let (Claim::Equal { proof: first, .. }, Claim::Equal { proof: second, .. }) =
        (good.claims[1].clone(), good.claims[2].clone())
    else {
        panic!()
    };
    for (place, new) in [(1, second), (2, first)] {
        let mut changed = good.clone();
        let Claim::Equal { proof, .. } = &mut changed.claims[place] else { panic!() };
        *proof = new;
        assert!(matches!(refused(&changed), VerifyError::Proof { .. }));
    }
    // An edited statement or opening of the other session.
    let mut edited = good.clone();
    let Claim::OtherSession(other) = &mut edited.claims[0] else { panic!() };
    other.statement.time += 1;
    assert!(matches!(refused(&edited), VerifyError::OtherSession(_)));
    let mut edited = good;
    let Claim::OtherSession(other) = &mut edited.claims[0] else { panic!() };
    other.fields.as_mut().unwrap().fields[0].path = "response./limit".into();
    assert!(matches!(refused(&edited), VerifyError::OtherSession(_)));
}

/// Makes a disclosure that `disclose` refuses, with proofs that hold, as a holder's own program
/// could.
fn forge_disclosure(
    session: &NotarisedSession,
    other: Option<&NotarisedSession>,
    wish: &str,
) -> Disclosure {
    let paths = |session| {
        let mut paths = disclose_claims(session, &["response./balance <= 10"]).unwrap();
        paths.claims.clear();
        paths
    };
    let mut forged = paths(session);
    forged.claims.extend(other.map(|other| Claim::OtherSession(Box::new(paths(other)))));
    let prover = Prover::new(session, &forged, means(other)).unwrap();
    let claim = prover.prove_claim(&prove(&[wish])[0]).unwrap();
    forged.claims.push(claim);
    Disclosure::decode(&forged.encode()).unwrap()
}

#[test]
fn one_session_does_not_pose_as_two_neither_at_its_holder_nor_at_its_reader() {
    let (one, two) = (session(1), session(2));
    let wish = "response./balance == other.response./balance";
    let error = one.disclose(&show(&[]), &prove(&[wish]), means(Some(&one))).unwrap_err();
    assert!(matches!(error, DiscloseError::SameSession { .. }), "{error}");
    // The same statement, signed again and read from another file, is the same session.
    let again = NotarisedSession::decode(&one.encode()).unwrap();
    let error = one.disclose(&show(&[]), &prove(&[wish]), means(Some(&again))).unwrap_err();
    assert!(matches!(error, DiscloseError::SameSession { .. }), "{error}");
    let refused = forge_disclosure(&one, Some(&one), wish).verify(None).unwrap_err();
    assert!(matches!(refused, VerifyError::SameSession { .. }), "{refused}");
    forge_disclosure(&one, Some(&two), wish).verify(None).unwrap();
}

#[test]
fn a_field_that_equals_itself_is_refused_at_its_holder_and_at_its_reader() {
    let session = session(1);
    let wish = "response./balance == response./balance";
    let error = disclose_claims(&session, &[wish]).unwrap_err();
    assert!(matches!(error, DiscloseError::SameField { .. }), "{error}");
    let refused = forge_disclosure(&session, None, wish).verify(None).unwrap_err();
    assert_eq!(refused, VerifyError::SameField { claim: 0 });
}

#[test]
fn a_nested_disclosure_without_an_equality_is_refused() {
    let (one, two) = (session(1), session(2));
    let shown = |session: &NotarisedSession| {
        session.disclose(&show(&["response./model"]), &prove(&[]), means(None)).unwrap()
    };
    let mut beside = shown(&one);
    beside.claims.push(Claim::OtherSession(Box::new(shown(&two))));
    let read = Disclosure::decode(&beside.encode()).unwrap();
    assert_eq!(read.verify(None).unwrap_err(), VerifyError::UnusedOtherSession);
    // An equality within this session does not use the other session.
    let mut here = disclose_claims(&one, &["response./balance == response./limit"]).unwrap();
    here.claims.push(Claim::OtherSession(Box::new(shown(&two))));
    assert_eq!(here.verify(None).unwrap_err(), VerifyError::UnusedOtherSession);
}

#[test]
fn a_session_within_another_holds_no_third_and_there_is_one_at_most() {
    let (one, two) = (session(1), session(2));
    let wish = ["response./balance == other.response./balance"];
    let good = one.disclose(&show(&[]), &prove(&wish), means(Some(&two))).unwrap();
    let mut twice = good.clone();
    twice.claims.push(good.claims[0].clone());
    assert!(matches!(Disclosure::decode(&twice.encode()), Err(FormatError::TooLong { .. })));
    let mut nested = good.clone();
    nested.claims[0] = Claim::OtherSession(Box::new(good));
    assert!(matches!(Disclosure::decode(&nested.encode()), Err(FormatError::Value { .. })));
}

#[test]
fn no_changed_byte_of_an_equality_says_anything_else() {
    let (one, two) = (session(1), session(2));
    let wish = ["response./balance == other.response./balance"];
    let file = one.disclose(&show(&[]), &prove(&wish), means(Some(&two))).unwrap().encode();
    let statement = one.statement.encode().len();
    let evidence = DISCLOSURE_MAGIC.len() + 4 + statement + 64;
    // The other session's file stands before the claim, which is the last 62 bytes: within it too
    // the lengths of evidence are judged elsewhere.
    let within = file.windows(DISCLOSURE_MAGIC.len()).rposition(|it| it == DISCLOSURE_MAGIC);
    let within = within.unwrap() + evidence;
    for place in (0..file.len()).step_by(3).chain(file.len() - 62..file.len()) {
        if (evidence..evidence + 12).contains(&place) || (within..within + 12).contains(&place) {
            continue;
        }
        let mut changed = file.clone();
        changed[place] ^= 1 << (place % 8);
        let Ok(read) = Disclosure::decode(&changed) else { continue };
        assert!(read.verify(None).is_err(), "byte {place}");
    }
}
