//! The one way in which AMD's certificates are signed: RSASSA-PSS with SHA-384, MGF1 with SHA-384
//! and 48 bytes of salt (RFC 4055 section 3.1).
//!
//! AMD writes trailer field 1 out, which DER leaves out because it is the default (VLEK
//! certificates leave it out). Stock identifiers match neither form, for AMD also writes the NULL
//! parameters of the hashes. The parameters are checked by comparing them byte by byte.

use core::fmt;

use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA384, UnparsedPublicKey};
use rustls_pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id,
};

/// The spelling with the trailer field: roots, intermediates, VCEK, revocation lists.
pub(crate) static WITH_TRAILER: AmdPss = AmdPss(AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, // rsassaPss
    0x30, 0x39, // parameters
    0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, // hash: SHA-384
    0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, // mask: MGF1 with SHA-384
    0xa2, 0x03, 0x02, 0x01, 0x30, // salt: 48 bytes
    0xa3, 0x03, 0x02, 0x01, 0x01, // trailer field: 1
]));

/// The spelling without the trailer field: VLEK.
pub(crate) static WITHOUT_TRAILER: AmdPss = AmdPss(AlgorithmIdentifier::from_slice(&[
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, // rsassaPss
    0x30, 0x34, // parameters
    0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, // hash: SHA-384
    0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08, 0x30,
    0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, // mask: MGF1 with SHA-384
    0xa2, 0x03, 0x02, 0x01, 0x30, // salt: 48 bytes
]));

/// The algorithm under one of its two spellings.
pub(crate) struct AmdPss(AlgorithmIdentifier);

impl SignatureVerificationAlgorithm for AmdPss {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA384, public_key)
            .verify(message, signature)
            .map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0
    }
}

impl fmt::Debug for AmdPss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AMD's RSASSA-PSS with SHA-384")
    }
}
