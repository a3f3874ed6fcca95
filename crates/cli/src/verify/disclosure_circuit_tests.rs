//! Circuits and disclosure together: a notary's statement, a disclosure with claims about hidden
//! texts, a verdict, and forgeries.

use sha2::{Digest, Sha256};

use super::*;

/// An answer of fewer than 1,024 bytes, so that the smallest circuits are used.
const BODY: &str = concat!(
    r#"{"model":"m-1","note":"a text of one chunk","balance":5,"#,
    r#""choices":[{"message":{"content":"four, says the model"}}],"usage":{"total_tokens":17}}"#
);

fn wishes() -> Vec<String> {
    let received = [b"HTTP/1.1 200\r\n\r\n", BODY.as_bytes()].concat();
    let across = String::from_utf8(received[60..72].to_vec()).unwrap();
    vec![
        r#"response.bytes contains "\"model\":\"m-1\"""#.to_string(),
        format!("response.bytes contains {}", serde_json::Value::from(across)),
        r#"response./choices/0/message/content contains "says""#.to_string(),
        format!(
            "sha256(response./choices/0/message/content) == {}",
            hex::encode(Sha256::digest("four, says the model"))
        ),
    ]
}

fn prove(session: &NotarisedSession, wishes: &[String]) -> Disclosure {
    let prove: Vec<Predicate> = wishes.iter().map(|text| Predicate::parse(text).unwrap()).collect();
    let means = DiscloseOptions { texts: text_proofs(), other: None };
    session.disclose(&[], &prove, means).unwrap()
}

fn with_change(disclosure: &Disclosure, change: impl FnOnce(&mut Disclosure)) -> Disclosure {
    let mut changed = disclosure.clone();
    change(&mut changed);
    changed
}

fn proof_of(claim: &mut Claim) -> &mut Vec<u8> {
    match claim {
        Claim::BytesContain { proof, .. }
        | Claim::FieldContains { proof, .. }
        | Claim::FieldSha256 { proof, .. } => proof,
        _ => panic!("a claim about a text was wanted"),
    }
}

#[test]
fn claims_about_hidden_texts_are_accepted_and_their_forgeries_refused_by_name() {
    let notary = Notary::new(1, Tee::Tdx);
    let (session, rules, wishes) = (notary.notarise(BODY), notary.rules(), wishes());
    let good = prove(&session, &wishes);
    all_are_listed(&good, &rules, &wishes);
    the_statement_is_the_one_that_was_signed(&good, &notary);
    other_texts_are_refused(&good, &rules);
    proofs_of_other_claims_are_refused(&good, &rules);
    proofs_of_other_sessions_are_refused(&good, &notary, &wishes);
}

fn all_are_listed(good: &Disclosure, rules: &DisclosurePolicy, wishes: &[String]) {
    let accepted = accept(good, rules);
    let json = report::describe_acceptance(&accepted).json;
    let proven = json["proven"].as_array().unwrap();
    assert_eq!(proven.len(), wishes.len());
    for (place, claim) in proven.iter().enumerate() {
        assert_eq!(claim["proof"]["back_end"], confide_circuits::BACK_END, "{place}");
        assert_eq!(claim["proof"]["conjectured_bits"], 128);
        assert_eq!(claim["proof"]["zero_knowledge"], true);
    }
    assert_eq!(proven[2]["name"], "response./choices/0/message/content");
    assert_eq!(proven[2]["predicate"], "contains \"says\"");
    assert_eq!(proven[3]["name"], "sha256(response./choices/0/message/content)");
    let text = report::describe_acceptance(&accepted).text;
    for secret in ["four", "sk-secret", "a text of one chunk"] {
        assert!(!text.contains(secret), "{secret} is in {text}");
        let file = good.encode();
        assert!(!file.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}

/// Other roots have other statements, which nobody signed or another session's notary did.
fn the_statement_is_the_one_that_was_signed(good: &Disclosure, notary: &Notary) {
    let rules = notary.rules();
    let other_root = with_change(good, |it| it.statement.response.root[0] ^= 1);
    assert_eq!(verdict_code(&other_root, &rules), "signature");
    let other_fields = with_change(good, |it| it.statement.fields.root[0] ^= 1);
    assert_eq!(verdict_code(&other_fields, &rules), "signature");
    // Signed by the notary's own key, but over another root than the proofs are.
    let resigned = with_change(good, |it| {
        it.statement.response.root[0] ^= 1;
        it.signature = notary.key.sign(&it.statement).unwrap();
    });
    assert_eq!(verdict_code(&resigned, &rules), "proof");
}

fn other_texts_are_refused(good: &Disclosure, rules: &DisclosurePolicy) {
    let other_text = |place: usize| {
        with_change(good, |it| match &mut it.claims[place] {
            Claim::BytesContain { text, .. } | Claim::FieldContains { text, .. } => {
                text.pop();
            }
            Claim::FieldSha256 { sha256, .. } => sha256[31] ^= 1,
            _ => panic!("a claim about a text was wanted"),
        })
    };
    for place in 0..4 {
        assert_eq!(verdict_code(&other_text(place), rules), "proof", "{place}");
    }
    let other_direction = with_change(good, |it| {
        let Claim::BytesContain { direction, .. } = &mut it.claims[0] else { panic!() };
        *direction = confide_disclosure::Direction::Request;
    });
    assert_eq!(verdict_code(&other_direction, rules), "proof");
    // A digest of the value that is not the one under the signed root.
    let other_leaf = with_change(good, |it| {
        let field = &mut it.fields.as_mut().unwrap().fields[0];
        let OpenedValue::Hidden { digest } = &mut field.value else { panic!("it is shown") };
        digest[0] ^= 1;
    });
    assert_eq!(verdict_code(&other_leaf, rules), "opening");
}

fn proofs_of_other_claims_are_refused(good: &Disclosure, rules: &DisclosurePolicy) {
    for (one, two) in [(0, 1), (2, 3), (0, 2)] {
        let swapped = with_change(good, |it| {
            let first = std::mem::take(proof_of(&mut it.claims[one]));
            let second = std::mem::replace(proof_of(&mut it.claims[two]), first);
            *proof_of(&mut it.claims[one]) = second;
        });
        assert_eq!(verdict_code(&swapped, rules), "proof", "{one} and {two}");
    }
    let cut = with_change(good, |it| {
        proof_of(&mut it.claims[2]).pop();
    });
    assert_eq!(verdict_code(&cut, rules), "proof");
    let flipped = with_change(good, |it| {
        let proof = proof_of(&mut it.claims[3]);
        let middle = proof.len() / 2;
        proof[middle] ^= 1;
    });
    assert_eq!(verdict_code(&flipped, rules), "proof");
    let weaker = with_change(good, |it| proof_of(&mut it.claims[2])[27] = 100);
    assert_eq!(verdict_code(&weaker, rules), "proof");
}

/// The same answer, notarised once more: other salts, other roots.
fn proofs_of_other_sessions_are_refused(good: &Disclosure, notary: &Notary, wishes: &[String]) {
    let other = prove(&notary.notarise(BODY), &wishes[2..3]);
    let rules = notary.rules();
    assert_eq!(accept(&other, &rules).verified.claims().len(), 1);
    let mixed = with_change(&other, |it| {
        *proof_of(&mut it.claims[0]) = proof_of(&mut good.claims[2].clone()).clone();
    });
    assert_eq!(verdict_code(&mixed, &rules), "proof");
    let whole = with_change(&other, |it| it.claims = good.claims[2..3].to_vec());
    assert_eq!(verdict_code(&whole, &rules), "proof");
}

#[test]
fn the_commands_prove_and_check_a_text() {
    let dir = std::env::temp_dir().join(format!("confide-circuits-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    let notary = Notary::new(1, Tee::Tdx);
    fs::write(path("session"), &*notary.notarise(BODY).encode()).unwrap();
    let prove = &wishes()[2];
    let all = ["t", &path("session"), "--out", &path("out"), "--prove", prove];
    crate::disclose::run(Disclose::try_parse_from(all).unwrap().args).unwrap();
    let file = fs::read(path("out")).unwrap();
    assert!(judge_disclosure(&file, &notary.rules(), text_proofs(), NOW + 100).is_ok());
    fs::remove_dir_all(dir).unwrap();
}
