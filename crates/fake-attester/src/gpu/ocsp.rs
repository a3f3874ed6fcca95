//! The simulated revocation answers: basic OCSP responses (RFC 6960) by a delegated responder.

use confide_evidence::gpu::DeviceCertificate;
use sha2::{Digest, Sha384};

use super::{
    certificates::{Chains, IssuedGpuCertificate},
    keys::GpuKey,
    options::{GpuFault, GpuOptions},
};
use crate::{
    asn1::{OCTET_STRING, bit_string, context_tagged, encode_element, sequence},
    time::{DAY, generalized_time},
};

/// The identifier of basic OCSP responses, 1.3.6.1.5.5.7.48.1.1.
const BASIC: &[u8] = &[6, 9, 0x2b, 6, 1, 5, 5, 7, 48, 1, 1];
/// The identifier of ECDSA with SHA-384, 1.2.840.10045.4.3.3.
const ECDSA_SHA384: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
/// The identifier of SHA-384, 2.16.840.1.101.3.4.2.2.
const SHA_384: &[u8] = &[6, 9, 0x60, 0x86, 0x48, 1, 101, 3, 4, 2, 2];
/// The days for which an answer holds.
const ANSWER_DAYS: u64 = 7;

/// The answers for all certificates but the attestation key's and the roots'.
pub(super) fn issue_responses(options: &GpuOptions, chains: &Chains) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let sets = [
        (&chains.device, 1, &chains.responders[0], GpuFault::DeviceRevoked),
        (&chains.manifest, 0, &chains.responders[1], GpuFault::ManifestRevoked),
    ];
    for (chain, first, responder, revoked_by) in sets {
        for (at, pair) in chain.windows(2).enumerate().skip(first) {
            let is_revoked = at == first && options.fault == Some(revoked_by);
            answers.push(issue_response(options, &pair[0], &pair[1], responder, is_revoked));
        }
    }
    answers
}

fn issue_response(
    options: &GpuOptions,
    subject: &IssuedGpuCertificate,
    issuer: &IssuedGpuCertificate,
    responder: &IssuedGpuCertificate,
    is_revoked: bool,
) -> Vec<u8> {
    let read = |issued: &'_ IssuedGpuCertificate| {
        let read = DeviceCertificate::parse("simulated certificate", &issued.der);
        let read = read.expect("a certificate made here is readable");
        (read.serial.to_vec(), read.subject_der())
    };
    let ((serial, _), (_, issuer_name)) = (read(subject), read(issuer));
    let hash = |bytes: &[u8]| encode_element(OCTET_STRING, &[&Sha384::digest(bytes)]);
    let id = sequence(&[
        &sequence(&[SHA_384]),
        &hash(&issuer_name),
        &hash(&issuer.key.public),
        &encode_element(0x02, &[&serial]),
    ]);
    let this_update = options.issued_at - DAY / 2;
    let next_update = match options.fault {
        Some(GpuFault::OcspEnded) => options.issued_at - DAY / 4,
        _ => options.issued_at + ANSWER_DAYS * DAY,
    };
    let status = if is_revoked {
        context_tagged(1, &[&encode_time(this_update)])
    } else {
        encode_element(0x80, &[])
    };
    let next_update = context_tagged(0, &[&encode_time(next_update)]);
    let single = sequence(&[&id, &status, &encode_time(this_update), &next_update]);
    let by_key = context_tagged(
        2,
        &[&encode_element(OCTET_STRING, &[&Sha384::digest(responder.key.public)[..20]])],
    );
    let data = sequence(&[&by_key, &encode_time(this_update), &sequence(&[&single])]);
    let stranger = GpuKey::from_options(options, "stranger");
    let signer = match options.fault {
        Some(GpuFault::OcspSignature) => &stranger,
        _ => &responder.key,
    };
    let signature = bit_string(&signer.sign_der(&data));
    let certificates = context_tagged(0, &[&sequence(&[&responder.der])]);
    let basic = sequence(&[&data, &sequence(&[ECDSA_SHA384]), &signature, &certificates]);
    let bytes = sequence(&[BASIC, &encode_element(OCTET_STRING, &[&basic])]);
    sequence(&[&[0x0a, 1, 0], &context_tagged(0, &[&bytes])])
}

/// A GeneralizedTime.
fn encode_time(unix_s: u64) -> Vec<u8> {
    encode_element(0x18, &[generalized_time(unix_s).as_bytes()])
}
