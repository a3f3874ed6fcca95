//! An answer of AMD's service: a certificate, a chain or a revocation list.
#![no_main]

use confide_collateral::{AmdKey, AmdSigner, DocumentKey, Product, parse_kds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (product, vlek) = (Product::Genoa, false);
    let signer = AmdSigner::Vlek("provider".into());
    for key in [
        DocumentKey::AmdKey(AmdKey { product, signer, tcb: [0; 8] }),
        DocumentKey::AmdChain { product, vlek },
        DocumentKey::AmdCrl { product, vlek },
    ] {
        let _ = parse_kds(&key, data);
    }
});
