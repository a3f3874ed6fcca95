//! Certificates of other programs that carry evidence.

use std::{fs, path::PathBuf};

use confide_evidence::{
    attested_certificate::{AttestedCertificate, AttestedCertificateError, CertificateForm},
    claims::Claims,
    pem::decode_long_chain,
    quote::Quote,
    tagged_evidence::TaggedEvidence,
};
use sha2::{Digest, Sha256, Sha384};

/// A file of the foreign vectors, which are not part of this repository.
fn read_foreign(file: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors"));
    fs::read(folder.join("providers").join(file)).ok()
}

#[test]
fn a_certificate_of_dstack_is_read_and_its_quote_is_about_its_key() {
    let Some(text) = read_foreign("dstack/ratls-near/app-cert.pem") else {
        return eprintln!("skipped: no foreign vectors");
    };
    let chain = decode_long_chain("certificate", &text, 128 * 1024).unwrap();
    let read = AttestedCertificate::parse(&chain[0]).unwrap();
    assert_eq!(read.form, CertificateForm::Dstack);
    let quote = Quote::parse(&read.quote).unwrap();
    assert_eq!(quote.report_data(), read.report_data);
    let other = read_foreign("dstack/neg-ratls-key/other-spki.der").unwrap();
    assert_ne!(other, read.spki);
}

/// A certificate with these extensions, and its key's SubjectPublicKeyInfo.
fn certificate(extensions: impl Fn(&[u8]) -> Vec<(&'static [u64], Vec<u8>)>) -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let extensions = extensions(&spki).into_iter();
    params.custom_extensions = extensions
        .map(|(id, content)| rcgen::CustomExtension::from_oid_content(id, content))
        .collect();
    params.self_signed(&key).unwrap().der().to_vec()
}

const TAGGED: &[u64] = &[2, 23, 133, 5, 4, 9];
const DSTACK_VERSIONED: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 8];
const GRAMINE: &[u64] = &[0, 6, 9, 42, 840, 113_741, 1337, 6];
const GRAMINE_AS_MEANT: &[u64] = &[1, 2, 840, 113_741, 1337, 6];

/// The CBOR array of a hash and its algorithm.
fn encode_hash_entry(algorithm: u8, hash: &[u8]) -> Vec<u8> {
    [&[0x82, algorithm, 0x58, hash.len() as u8], hash].concat()
}

/// `60000([quote, claims])`, whose claims hold another claim before the key's hash.
fn encode_tagged(algorithm: u8, hash: &[u8]) -> Vec<u8> {
    encode_tagged_entry(&encode_hash_entry(algorithm, hash))
}

/// The same with this item as the value of `pubkey-hash`.
fn encode_tagged_entry(entry: &[u8]) -> Vec<u8> {
    let head = [&[0xa2, 0x61, b'a', 0x81, 0x01, 0x6b][..], b"pubkey-hash"];
    let claims = [&head.concat()[..], entry].concat();
    let quote = b"a quote";
    let start = [0xd9, 0xea, 0x60, 0x82, 0x40 + quote.len() as u8];
    [&start[..], quote, &[0x58, claims.len() as u8], &claims].concat()
}

#[test]
fn claims_of_others_are_read_for_the_hash_of_the_key() {
    for certificate in [
        certificate(|spki| vec![(TAGGED, encode_tagged(1, &Sha256::digest(spki)))]),
        certificate(|spki| {
            // The interoperable form counts where there are both, as in Gramine's certificates.
            vec![(GRAMINE, b"old".to_vec()), (TAGGED, encode_tagged(7, &Sha384::digest(spki)))]
        }),
    ] {
        let read = AttestedCertificate::parse(&certificate).unwrap();
        assert_eq!((read.form, &read.quote[..]), (CertificateForm::Tagged, &b"a quote"[..]));
        assert_eq!(read.report_data.0[32..], [0; 32]);
    }
    let other = certificate(|_| vec![(TAGGED, encode_tagged(1, &[7; 32]))]);
    assert_eq!(AttestedCertificate::parse(&other), Err(AttestedCertificateError::Key));
    let unknown = certificate(|spki| vec![(TAGGED, encode_tagged(2, &Sha256::digest(spki)))]);
    let error = AttestedCertificate::parse(&unknown).unwrap_err();
    assert!(matches!(error, AttestedCertificateError::Extension { .. }));
}

#[test]
fn claims_of_gramine_hold_the_key_hash_as_a_byte_string() {
    let wrap = |entry: &[u8]| [&[0x58, entry.len() as u8], entry].concat();
    let entry = |spki: &[u8]| encode_hash_entry(1, &Sha256::digest(spki));
    let wrapped = certificate(|spki| vec![(TAGGED, encode_tagged_entry(&wrap(&entry(spki))))]);
    let read = AttestedCertificate::parse(&wrapped).unwrap();
    assert_eq!((read.form, read.claims), (CertificateForm::Tagged, None));
    let other_key = encode_tagged_entry(&wrap(&encode_hash_entry(1, &[7; 32])));
    let other_key = certificate(|_| vec![(TAGGED, other_key.clone())]);
    assert_eq!(AttestedCertificate::parse(&other_key), Err(AttestedCertificateError::Key));
    let longer = certificate(|spki| {
        let entry = [entry(spki), vec![0]].concat();
        vec![(TAGGED, encode_tagged_entry(&wrap(&entry)))]
    });
    let error = AttestedCertificate::parse(&longer).unwrap_err();
    assert!(matches!(error, AttestedCertificateError::Extension { .. }));
}

#[test]
fn a_certificate_of_this_project_comes_with_its_claims() {
    let claims = |spki: &[u8]| Claims {
        config_digest: [5; 32],
        gpu_evidence_hash: None,
        guarantee: "operator is outside the TEE".into(),
        nonce: None,
        not_after: 1_800_003_600,
        not_before: 1_800_000_000,
        pubkey_hash: Sha256::digest(spki).into(),
        weights: None,
    };
    let certificate = certificate(|spki| {
        let claims = claims(spki).encode();
        vec![(TAGGED, TaggedEvidence { quote: b"a quote", claims: &claims }.encode())]
    });
    let read = AttestedCertificate::parse(&certificate).unwrap();
    assert_eq!(read.form, CertificateForm::Confide);
    assert_eq!(Claims::decode(read.claims.as_deref().unwrap()), Ok(claims(&read.spki)));
    assert_eq!(read.spki_hash()[..], Sha256::digest(&read.spki)[..]);
}

#[test]
fn an_older_gramine_certificate_binds_the_hash_of_its_key() {
    // The identifier as Gramine's library has it: tag and length are part of the content.
    let identifier = [6, 11, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 0x8a, 0x39, 6];
    for (id, is_written_by_gramine) in [(GRAMINE, true), (GRAMINE_AS_MEANT, false)] {
        let certificate = certificate(|_| vec![(id, b"\x03\x00\x02\x00 quote".to_vec())]);
        let has_identifier = certificate.windows(identifier.len()).any(|part| part == identifier);
        assert_eq!(has_identifier, is_written_by_gramine);
        let read = AttestedCertificate::parse(&certificate).unwrap();
        assert_eq!(read.form, CertificateForm::Gramine);
        assert_eq!(read.quote, b"\x03\x00\x02\x00 quote");
        assert_eq!(read.report_data.0[..32], Sha256::digest(&read.spki)[..]);
    }
    let both = certificate(|_| vec![(GRAMINE, b"a".to_vec()), (GRAMINE_AS_MEANT, b"a".to_vec())]);
    let error = AttestedCertificate::parse(&both).unwrap_err();
    assert!(matches!(error, AttestedCertificateError::Certificate { .. }));
}

#[test]
fn a_certificate_without_evidence_that_is_read_says_so() {
    let parse = |certificate: Vec<u8>| AttestedCertificate::parse(&certificate).unwrap_err();
    assert_eq!(parse(certificate(|_| vec![])), AttestedCertificateError::NoEvidence);
    let versioned = certificate(|_| vec![(DSTACK_VERSIONED, b"scale".to_vec())]);
    assert_eq!(parse(versioned), AttestedCertificateError::Unsupported);
    let twice = certificate(|_| vec![(GRAMINE, b"a".to_vec()), (GRAMINE, b"b".to_vec())]);
    assert!(matches!(parse(twice), AttestedCertificateError::Certificate { .. }));
    let empty = certificate(|_| vec![(GRAMINE, vec![])]);
    assert_eq!(parse(empty), AttestedCertificateError::QuoteLength { got: 0 });
    assert!(matches!(parse(b"0".to_vec()), AttestedCertificateError::Certificate { .. }));
}
