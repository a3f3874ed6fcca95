//! Disclosures show what is named, and hide everything else.

use super::*;
use crate::{
    comparison::Comparison,
    disclose_error::DiscloseError,
    disclosure::{Claim, DISCLOSURE_MAGIC},
    evidence::NotaryEvidence,
    message::{HttpMessage, StartLine},
    name::{Predicate, Selector},
    proving::DiscloseOptions,
    session::{NotarisedSession, SessionFacts, SessionTranscript, notarise},
    signature::NotaryKey,
    statement::{BodyView, HttpVersion},
    tls::TlsSession,
};
use confide_transcript::{OpeningError, Seed};

const BODY: &str = concat!(
    r#"{"model":"m-1","created":1795341600,"at":"2026-11-22T10:00:00Z","note":"\"balance\":100","#,
    r#""balance":5,"limit":5.0,"choices":[{"message":{"content":"four"}}],"usage":{"total_tokens":17}}"#
);

pub(super) fn session(seed: u8) -> NotarisedSession {
    session_at(seed, 1_795_341_600)
}

pub(super) fn session_at(seed: u8, time: u64) -> NotarisedSession {
    let request = HttpMessage {
        start: StartLine::Request { method: "POST".into(), target: "/v1/chat/completions".into() },
        headers: vec![
            ("host".into(), b"api.example.com".to_vec()),
            ("authorization".into(), b"Bearer sk-very-secret".to_vec()),
            ("content-type".into(), b"application/json".to_vec()),
        ],
        body: br#"{"model":"m-1","messages":[{"role":"user","content":"2+2?"}]}"#.to_vec(),
    };
    let response = HttpMessage {
        start: StartLine::Response { status: 200 },
        headers: vec![("content-type".into(), b"application/json".to_vec())],
        body: BODY.into(),
    };
    let mut sent = b"POST /v1/chat/completions HTTP/1.1\r\nhost: api.example.com\r\n".to_vec();
    sent.extend(b"authorization: Bearer sk-very-secret\r\n\r\n");
    sent.extend([b'x'; 200]);
    sent.extend(&request.body);
    let received = [b"HTTP/1.1 200 OK\r\n\r\n", BODY.as_bytes()].concat();
    let facts = SessionFacts {
        host: "api.example.com".into(),
        port: 443,
        certificate_chain_hash: [7; 32],
        tls: TlsSession::from_numbers(0x0304, 0x11ec, 0x1302).unwrap(),
        time,
        http: HttpVersion::V11,
    };
    let key = NotaryKey::from_secret(&[5; 32]).unwrap();
    let session = SessionTranscript {
        sent: &sent,
        received: &received,
        request: &request,
        response: &response,
    };
    let seed = Seed::from_bytes([seed; 32]);
    notarise(&key, seed, facts, session, NotaryEvidence::default()).unwrap()
}

pub(super) fn show(names: &[&str]) -> Vec<Selector> {
    names.iter().map(|name| Selector::parse(name).unwrap()).collect()
}

pub(super) fn prove(predicates: &[&str]) -> Vec<Predicate> {
    predicates.iter().map(|text| Predicate::parse(text).unwrap()).collect()
}

fn disclose_fields(names: &[&str], predicates: &[&str]) -> Disclosure {
    session(1).disclose(&show(names), &prove(predicates), DiscloseOptions::default()).unwrap()
}

#[test]
fn what_is_named_is_shown_and_everything_else_is_hidden() {
    let disclosure = disclose_fields(
        &["response./choices/0/message/content", "request./model", "response.status"],
        &["response./usage/total_tokens <= 4096", "response./at >= 2026-01-01T00:00:00Z"],
    );
    let file = disclosure.encode();
    let read = Disclosure::decode(&file).unwrap();
    assert_eq!(read, disclosure);
    let verified = read.verify(None).unwrap();
    let mut paths: Vec<_> = verified.fields().iter().map(|field| field.path.as_str()).collect();
    paths.sort();
    assert_eq!(paths, ["request./model", "response./choices/0/message/content", "response.status"]);
    let shown: Vec<_> = verified.claims().iter().map(|claim| format!("{claim:?}")).collect();
    assert_eq!(shown.len(), 2);
    for secret in ["sk-very", "2+2", "balance", "1795341600", "POST"] {
        let found = file.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{secret} is in the file");
    }
    for length in 0..file.len() {
        assert!(Disclosure::decode(&file[..length]).is_err());
    }
}

#[test]
fn a_container_is_shown_with_all_that_is_in_it() {
    let verified = disclose_fields(&["response./choices"], &[]).verify(None).unwrap();
    let mut paths: Vec<_> = verified.fields().iter().map(|field| field.path.as_str()).collect();
    paths.sort();
    let wanted = [
        "response./choices",
        "response./choices/0",
        "response./choices/0/message",
        "response./choices/0/message/content",
    ];
    assert_eq!(paths, wanted);
}

#[test]
fn no_changed_byte_of_a_disclosure_says_anything_else() {
    let disclosure =
        disclose_fields(&["response./model", "response.bytes:0-10"], &["response./balance <= 10"]);
    let good = disclosure.verify(None).unwrap();
    let file = disclosure.encode();
    let evidence = 4 + disclosure.statement.encode().len() + 64 + DISCLOSURE_MAGIC.len();
    for place in 0..file.len() {
        // The lengths of quote, claims and endorsements: evidence is appraised elsewhere.
        if (evidence..evidence + 12).contains(&place) {
            continue;
        }
        let mut changed = file.clone();
        changed[place] ^= 1 << (place % 8);
        let Ok(read) = Disclosure::decode(&changed) else { continue };
        if let Ok(verified) = read.verify(None) {
            panic!("byte {place} changed: {:?} from {:?}", verified.0, good.0);
        }
    }
}

#[test]
fn an_edited_answer_or_a_string_posing_as_a_field_is_refused() {
    let good = disclose_fields(&["response./balance", "response./note"], &[]);
    let opening = good.fields.clone().unwrap();
    for (place, field) in opening.fields.iter().enumerate() {
        let mut edited = good.clone();
        let fields = &mut edited.fields.as_mut().unwrap().fields;
        if let OpenedValue::Revealed { value, .. } = &mut fields[place].value {
            *value = b"100".to_vec();
        }
        assert_eq!(edited.verify(None).unwrap_err(), OpeningError::Root { what: "fields" }.into());
        let mut posing = good.clone();
        let other = if field.path.ends_with("note") { "balance" } else { "note" };
        posing.fields.as_mut().unwrap().fields[place].path = format!("response./{other}");
        assert_eq!(posing.verify(None).unwrap_err(), OpeningError::Root { what: "fields" }.into());
    }
}

#[test]
fn openings_and_proofs_of_one_session_are_worth_nothing_in_another() {
    let names = ["response./model", "response.bytes:0-10", "request.length"];
    let wish = ["response./balance <= 10"];
    let (one, two) = (session(1), session(2));
    let one = one.disclose(&show(&names), &prove(&wish), DiscloseOptions::default()).unwrap();
    let two = two.disclose(&show(&names), &prove(&wish), DiscloseOptions::default()).unwrap();
    two.verify(None).unwrap();
    let mixes: [fn(&mut Disclosure, &Disclosure); 5] = [
        |to, from| to.fields = from.fields.clone(),
        |to, from| to.bytes = from.bytes.clone(),
        |to, from| to.lengths = from.lengths,
        |to, from| to.claims = from.claims.clone(),
        |to, from| to.signature = from.signature,
    ];
    for (place, mix) in mixes.into_iter().enumerate() {
        let mut mixed = two.clone();
        mix(&mut mixed, &one);
        assert!(mixed.verify(None).is_err(), "mix {place}");
    }
    // Openings of one direction do not open the other.
    let mut swapped = two.clone();
    swapped.bytes.swap(0, 1);
    assert!(swapped.verify(None).is_err());
    let mut swapped = two;
    swapped.lengths.swap(0, 1);
    assert!(swapped.verify(None).is_err());
}

#[test]
fn a_proof_holds_for_its_field_and_constants_only() {
    let good = disclose_fields(&[], &["response./balance <= 10", "response./created >= 1"]);
    good.verify(None).unwrap();
    let mut other = good.clone();
    let Claim::Compare { comparison, .. } = &mut other.claims[0] else { panic!() };
    *comparison = Comparison::AtMost((1 << 63) + 4_000_000);
    assert!(matches!(other.verify(None), Err(VerifyError::Proof { claim: 0, .. })));
    let mut moved = good.clone();
    for claim in &mut moved.claims {
        let Claim::Compare { field, .. } = claim else { panic!() };
        *field ^= 1;
    }
    assert!(matches!(moved.verify(None), Err(VerifyError::Proof { claim: 0, .. })));
    let mut absent = good.clone();
    let Claim::Compare { field, .. } = &mut absent.claims[1] else { panic!() };
    *field = 9;
    assert_eq!(absent.verify(None).unwrap_err(), VerifyError::InvalidField { claim: 1 });
    let mut nothing = good;
    nothing.claims.clear();
    assert_eq!(nothing.verify(None).unwrap_err(), VerifyError::Empty);
}

#[test]
fn what_cannot_be_shown_or_proven_is_said_by_name() {
    let session = session(1);
    let refuse = |names: &[&str], wishes: &[&str]| {
        session.disclose(&show(names), &prove(wishes), DiscloseOptions::default()).unwrap_err()
    };
    let error = refuse(&["response./answer"], &[]);
    assert!(matches!(error, DiscloseError::NoField { .. }), "{error}");
    let error = refuse(&["response.bytes:0-100000"], &[]);
    assert!(matches!(error, DiscloseError::Transcript(_)), "{error}");
    let error = refuse(&[], &["response./balance <= 4"]);
    assert!(matches!(error, DiscloseError::FalsePredicate { .. }), "{error}");
    let error = refuse(&[], &["response./model <= 4"]);
    assert!(matches!(error, DiscloseError::NoAmount { .. }), "{error}");
    let error = refuse(&["response./balance"], &["response./balance <= 10"]);
    assert!(matches!(error, DiscloseError::AlreadyShown { .. }), "{error}");
    let error = refuse(&[], &["response.bytes contains \"m-1\""]);
    assert!(matches!(error, DiscloseError::NoCircuits { .. }), "{error}");
    let error = refuse(&["request.bytes:10-20", "request.bytes:64-65"], &[]);
    assert!(matches!(error, DiscloseError::Secret { start: 64, end: 128, .. }), "{error}");
    let named = ["request.bytes:64-65", "request.header:authorization"];
    session.disclose(&show(&named), &[], DiscloseOptions::default()).unwrap();
}

#[test]
fn a_holders_file_is_what_the_notary_signed_or_is_refused() {
    let session = session(1);
    let file = session.encode();
    let read = NotarisedSession::decode(&file).unwrap();
    read.check().unwrap();
    assert_eq!(read.encode(), file);
    let changes: [fn(&mut NotarisedSession); 6] = [
        |it| it.seed = Seed::from_bytes([2; 32]),
        |it| it.sent[3] ^= 1,
        |it| it.received.push(0),
        |it| it.fields[4].value.push(b'1'),
        |it| it.fields.swap(1, 2),
        |it| it.statement.time += 1,
    ];
    for (place, change) in changes.into_iter().enumerate() {
        let mut changed = NotarisedSession::decode(&file).unwrap();
        change(&mut changed);
        assert!(changed.check().is_err(), "change {place}");
        assert!(
            changed.disclose(&show(&["response.status"]), &[], DiscloseOptions::default()).is_err()
        );
    }
    for length in (0..file.len()).step_by(7) {
        assert!(NotarisedSession::decode(&file[..length]).is_err());
    }
}

#[test]
fn the_views_of_both_bodies_are_in_the_statement() {
    let statement = session(1).statement.clone();
    assert_eq!((statement.request_view, statement.response_view), (BodyView::Json, BodyView::Json));
}
