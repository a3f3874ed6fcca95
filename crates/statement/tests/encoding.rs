//! One encoding for each statement, and nothing else is read.

mod samples;

use std::collections::BTreeSet;

use confide_statement::{ENCODED_BYTES_MAX, Statement, StatementError};
use samples::samples;

#[test]
fn every_statement_is_read_as_it_was_written() {
    for statement in samples() {
        let bytes = statement.encode();
        assert!(bytes.len() <= ENCODED_BYTES_MAX);
        assert_eq!(Statement::decode(&bytes).as_ref(), Ok(&statement));
    }
}

#[test]
fn the_samples_hold_every_claim_and_no_two_have_the_same_bytes() {
    let claims: BTreeSet<&str> = samples().iter().map(Statement::claim_name).collect();
    assert_eq!(claims, Statement::CLAIMS.into());
    let digests: BTreeSet<[u8; 32]> = samples().iter().map(Statement::digest).collect();
    assert_eq!(digests.len(), samples().len());
}

#[test]
fn the_bytes_are_the_tag_and_the_fields_each_after_its_length() {
    let bytes = samples()[0].encode();
    let wanted = [
        &[0, 0, 0, 30][..],
        b"confide/statement/v1/fibonacci",
        &[0, 0, 0, 4, 0, 0, 0, 10],
        &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 55],
    ]
    .concat();
    assert_eq!(bytes, wanted);
}

#[test]
fn a_cut_or_lengthened_statement_is_refused() {
    for statement in samples() {
        let mut bytes = statement.encode();
        for length in 0..bytes.len() {
            assert!(Statement::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        bytes.push(0);
        assert_eq!(Statement::decode(&bytes), Err(StatementError::Trailing { got: 1 }));
    }
}

#[test]
fn a_changed_byte_gives_another_statement_or_none() {
    for statement in samples() {
        let bytes = statement.encode();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                if let Ok(other) = Statement::decode(&changed) {
                    assert_ne!(other, statement, "byte {at}");
                    assert_eq!(other.encode(), changed);
                }
            }
        }
    }
}

#[test]
fn another_version_or_claim_is_refused() {
    for tag in ["confide/statement/v2/fibonacci", "confide/statement/v1/fibonaccj", "fibonacci", ""]
    {
        let mut bytes = (tag.len() as u32).to_be_bytes().to_vec();
        bytes.extend(tag.as_bytes());
        assert_eq!(Statement::decode(&bytes), Err(StatementError::Tag), "{tag}");
    }
    let long = vec![0; ENCODED_BYTES_MAX + 1];
    assert!(matches!(Statement::decode(&long), Err(StatementError::TooLong { .. })));
}

#[test]
fn fields_beyond_their_limits_are_refused() {
    for (statement, field) in samples::out_of_bounds() {
        let subject = match statement.check() {
            Err(
                StatementError::Value { subject, .. } | StatementError::TooLong { subject, .. },
            ) => subject,
            other => panic!("{field}: {other:?}"),
        };
        assert_eq!(subject, field);
        assert!(Statement::decode(&statement.encode()).is_err(), "{field}");
    }
}
