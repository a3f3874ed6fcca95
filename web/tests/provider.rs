//! The provider in Rust alone against aws-lc-rs: handshakes in both directions of each suite and group, shares
//! that have to be refused, and the verifier's signature checks.

use std::{
    io::{Read, Write},
    sync::Arc,
};

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PSS_SHA384, RsaKeyPair,
        UnparsedPublicKey,
    },
};
use confide_verifier::{AwsLc, Crypto};
use confide_web::{RustCrypto, provider};
use rustls::{
    ClientConfig, ClientConnection, ContentType, NamedGroup, ProtocolVersion, RootCertStore,
    ServerConfig, ServerConnection, SupportedCipherSuite,
    crypto::{
        CryptoProvider, SupportedKxGroup, aws_lc_rs as aws,
        cipher::{AeadKey, Iv, OutboundChunks, OutboundPlainMessage},
    },
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::TLS13,
};

/// More than a record, and not a multiple of one.
const MESSAGE_BYTES: usize = 100_001;

/// A provider with one suite and one group, so that a handshake uses them.
fn narrow_provider(
    of: &CryptoProvider,
    suite: &SupportedCipherSuite,
    group: &'static dyn SupportedKxGroup,
) -> CryptoProvider {
    // The server signs with aws-lc-rs either way: the provider has no keys.
    let key_provider = aws::default_provider().key_provider;
    let found = of.cipher_suites.iter().find(|it| it.suite() == suite.suite());
    let cipher_suites = vec![*found.expect("both have the suite")];
    CryptoProvider { cipher_suites, kx_groups: vec![group], key_provider, ..of.clone() }
}

fn group_of(of: &CryptoProvider, name: NamedGroup) -> &'static dyn SupportedKxGroup {
    *of.kx_groups.iter().find(|it| it.name() == name).expect("both have the group")
}

/// Runs a handshake and sends a message each way.
fn converse(client: CryptoProvider, server: CryptoProvider, key: &rcgen::KeyPair) {
    let parameters = rcgen::CertificateParams::new(["server.example".into()]).unwrap();
    let certificate = CertificateDer::from(parameters.self_signed(key).unwrap());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let client = ClientConfig::builder_with_provider(client.into())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerConfig::builder_with_provider(server.into())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let name = "server.example".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let message: Vec<u8> = (0..MESSAGE_BYTES).map(|at| at as u8).collect();
    client.set_buffer_limit(None);
    server.set_buffer_limit(None);
    client.writer().write_all(&message).unwrap();
    server.writer().write_all(&message).unwrap();
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    while at_server.len() < message.len() || at_client.len() < message.len() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
            let _ = server.reader().read_to_end(&mut at_server);
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
            let _ = client.reader().read_to_end(&mut at_client);
        }
    }
    assert!(at_server == message && at_client == message);
    let exported = |label: &[u8]| {
        let ours = client.export_keying_material([0; 32], label, Some(b"context")).unwrap();
        (ours, server.export_keying_material([0; 32], label, Some(b"context")).unwrap())
    };
    let (ours, theirs) = exported(b"EXPORTER-test");
    assert_eq!(ours, theirs);
}

#[test]
fn every_suite_and_group_works_with_aws_lc_in_both_directions() {
    let (ours, theirs) = (provider::provider(), aws::default_provider());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    assert_eq!(ours.cipher_suites.len(), 3);
    assert_eq!(ours.kx_groups[0].name(), NamedGroup::X25519MLKEM768);
    for suite in &ours.cipher_suites {
        for group in &ours.kx_groups {
            let mine = narrow_provider(&ours, suite, *group);
            let other = narrow_provider(&theirs, suite, group_of(&theirs, group.name()));
            converse(mine.clone(), other.clone(), &key);
            converse(other, mine, &key);
        }
    }
}

#[test]
fn a_server_without_the_hybrid_gets_the_classical_share() {
    let (ours, theirs) = (provider::provider(), aws::default_provider());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    for name in [NamedGroup::X25519, NamedGroup::secp256r1] {
        let suite = ours.cipher_suites[0];
        converse((*ours).clone(), narrow_provider(&theirs, &suite, group_of(&theirs, name)), &key);
    }
}

#[test]
fn shares_that_aws_lc_refuses_are_refused() {
    let (ours, theirs) = (provider::provider(), aws::default_provider());
    let hybrid_server_share =
        |ml_kem: u8, x25519: u8| [vec![ml_kem; 1088], vec![x25519; 32]].concat();
    let off_curve = [&[4][..], &[1; 64]].concat();
    let compressed = [&[2][..], &[1; 32]].concat();
    for (name, share) in [
        (NamedGroup::X25519, vec![0; 32]),
        (NamedGroup::X25519, vec![9; 31]),
        (NamedGroup::X25519, Vec::new()),
        (NamedGroup::secp256r1, off_curve),
        (NamedGroup::secp256r1, compressed),
        (NamedGroup::secp256r1, vec![0]),
        (NamedGroup::X25519MLKEM768, hybrid_server_share(1, 0)),
        (NamedGroup::X25519MLKEM768, vec![1; 1119]),
        (NamedGroup::X25519MLKEM768, vec![1; 1121]),
    ] {
        for of in [&ours, &Arc::new(theirs.clone())] {
            let exchange = group_of(of, name).start().unwrap();
            assert!(exchange.complete(&share).is_err(), "{name:?}, {} bytes", share.len());
        }
    }
    // The server's half: coefficients that are not reduced, and a share of small order.
    let hybrid = |of: &CryptoProvider, key: u8, x25519: u8| {
        let share = [vec![key; 1184], vec![x25519; 32]].concat();
        group_of(of, NamedGroup::X25519MLKEM768).start_and_complete(&share).is_ok()
    };
    for of in [&*ours, &theirs] {
        assert!(!hybrid(of, 0xff, 9));
        assert!(!hybrid(of, 0, 0));
        assert!(hybrid(of, 0, 9));
    }
}

/// Checks a signature over a message with a provider and a key.
type Verify = dyn Fn(&dyn Crypto, &[u8], &[u8], &[u8]) -> bool;

/// Signs 50 messages, and compares what both say of each signature, as it is and changed.
fn compare_signatures(algorithm: &'static EcdsaSigningAlgorithm, verify: &Verify) {
    let key = EcdsaKeyPair::generate(algorithm).unwrap();
    let public = key.public_key().as_ref();
    let mut high_s = 0;
    for number in 0..50_u8 {
        let message = [number; 70];
        let signature = key.sign(&SystemRandom::new(), &message).unwrap();
        let signature = signature.as_ref();
        high_s += usize::from(signature[signature.len() / 2] >= 0x80);
        let mut changed = signature.to_vec();
        changed[usize::from(number) % signature.len()] ^= 1;
        let mut other_key = public.to_vec();
        other_key[usize::from(number) + 1] ^= 1;
        let zeros = vec![0; signature.len()];
        for (wanted, public, signature) in [
            (true, public, signature),
            (false, public, changed.as_slice()),
            (false, other_key.as_slice(), signature),
            (false, public, zeros.as_slice()),
        ] {
            assert_eq!(verify(&AwsLc, public, &message, signature), wanted);
            assert_eq!(verify(&RustCrypto, public, &message, signature), wanted);
        }
    }
    assert!(high_s > 0, "quoting enclaves make signatures with a high s");
}

#[test]
fn signatures_are_accepted_and_refused_as_aws_lc_does() {
    compare_signatures(&ECDSA_P256_SHA256_FIXED_SIGNING, &|of, key, message, signature| {
        of.verify_p256(key.try_into().unwrap(), message, signature.try_into().unwrap())
    });
    compare_signatures(&ECDSA_P384_SHA384_FIXED_SIGNING, &|of, key, message, signature| {
        of.verify_p384(key.try_into().unwrap(), message, signature.try_into().unwrap())
    });
}

#[test]
fn ed25519_signatures_are_accepted_and_refused_as_aws_lc_does() {
    let ours = provider::signatures::ED25519;
    let pair = Ed25519KeyPair::generate().unwrap();
    let (key, signature) = (pair.public_key().as_ref(), pair.sign(b"message"));
    let check = |key: &[u8], message: &[u8], signature: &[u8], wanted: bool| {
        let aws = UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok();
        let own = ours.verify_signature(key, message, signature).is_ok();
        assert_eq!((aws, own), (wanted, wanted), "{key:x?} {message:x?} {signature:x?}");
    };
    check(key, b"message", signature.as_ref(), true);
    check(key, b"another", signature.as_ref(), false);
    check(&key[1..], b"message", signature.as_ref(), false);
    check(key, b"message", &signature.as_ref()[1..], false);
    for at in [0, 31, 32, 63] {
        let mut changed = signature.as_ref().to_vec();
        changed[at] ^= 1;
        check(key, b"message", &changed, false);
    }
}

#[test]
fn a_server_may_sign_with_each_algorithm_of_the_channel() {
    for algorithm in
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
    {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        converse((*provider::provider()).clone(), aws::default_provider(), &key);
    }
}

#[test]
fn amd_signatures_are_accepted_and_refused_as_aws_lc_does() {
    let key = RsaKeyPair::generate(KeySize::Rsa4096).unwrap();
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PSS_SHA384, &SystemRandom::new(), b"report", &mut signature).unwrap();
    let public = key.public_key().as_ref();
    let mut changed = signature.clone();
    changed[100] ^= 1;
    for at in 0..2 {
        let ours = RustCrypto.amd_certificate_algorithms()[at];
        let theirs = AwsLc.amd_certificate_algorithms()[at];
        assert_eq!(ours.signature_alg_id(), theirs.signature_alg_id());
        assert_eq!(ours.public_key_alg_id(), theirs.public_key_alg_id());
        for (wanted, message, signature) in [
            (true, &b"report"[..], &signature),
            (false, b"other", &signature),
            (false, b"report", &changed),
        ] {
            for algorithm in [ours, theirs] {
                let verified = algorithm.verify_signature(public, message, signature);
                assert_eq!(verified.is_ok(), wanted);
            }
        }
        assert!(ours.verify_signature(&public[1..], b"report", &signature).is_err());
    }
}

#[test]
fn hashes_are_those_of_aws_lc() {
    for parts in [&[&b""[..]][..], &[b"abc"], &[b"a", b"", &[7; 200]]] {
        assert_eq!(RustCrypto.sha256(parts), AwsLc.sha256(parts));
        assert_eq!(RustCrypto.sha384(parts), AwsLc.sha384(parts));
    }
}

#[test]
fn records_and_key_schedules_are_those_of_aws_lc() {
    let (ours, theirs) = (provider::provider(), aws::default_provider());
    for suite in &ours.cipher_suites {
        let other = theirs.cipher_suites.iter().find(|it| it.suite() == suite.suite()).unwrap();
        let suites = [suite, other].map(|suite| suite.tls13().unwrap());
        for (salt, secret) in [(None, &[1; 32][..]), (Some(&[2; 48][..]), &[3; 1])] {
            let expanded = suites.map(|suite| {
                let mut output = [0; 100];
                let expander = suite.hkdf_provider.extract_from_secret(salt, secret);
                expander.expand_slice(&[b"label", b"context"], &mut output).unwrap();
                let block = expander.expand_block(&[b"label"]).as_ref().to_vec();
                (output, block, suite.common.hash_provider.hash(&output).as_ref().to_vec())
            });
            assert_eq!(expanded[0], expanded[1], "{:?}", suite.suite());
        }
        // rustls makes keys of other lengths itself; the handshakes above compare them.
        if suites[0].aead_alg.key_len() != 32 {
            continue;
        }
        for (sequence, length) in [(0, 0), (1, 1), (1 << 40, 16_384)] {
            let records = suites.map(|suite| {
                let text = vec![7; length];
                let message = OutboundPlainMessage {
                    typ: ContentType::ApplicationData,
                    version: ProtocolVersion::TLSv1_2,
                    payload: OutboundChunks::Single(&text),
                };
                let (key, iv) = (AeadKey::from([5; 32]), Iv::from([6; 12]));
                let sealed = suite.aead_alg.encrypter(key, iv).encrypt(message, sequence);
                sealed.unwrap().encode()
            });
            assert!(records[0] == records[1], "{:?}, {length} bytes", suite.suite());
        }
    }
}
