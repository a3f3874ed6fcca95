//! Fixed, recognisable values where a machine would have measured something.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// SHA-384 of `SIMULATED ` and a name: MRTD, RTMRs, MRSEAM.
pub(crate) fn trust_domain_measurement(name: &str) -> [u8; 48] {
    Sha384::digest(format!("SIMULATED {name}")).into()
}

/// SHA-256 of `SIMULATED ` and a name: MRENCLAVE, MRSIGNER.
pub(crate) fn enclave_measurement(name: &str) -> [u8; 32] {
    Sha256::digest(format!("SIMULATED {name}")).into()
}

/// 16 bytes that name this simulated platform, different for each seed, which they do not reveal.
pub(crate) fn platform_id(seed: &[u8; 32], name: &str) -> [u8; 16] {
    let hash = Sha256::new()
        .chain_update(b"confide SIMULATED platform v1\0")
        .chain_update(name)
        .chain_update([0])
        .chain_update(seed)
        .finalize();
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    id
}

/// 64 bytes that name this simulated chip, different for each seed, which they do not reveal.
pub(crate) fn chip_id(seed: &[u8; 32], name: &str) -> [u8; 64] {
    Sha512::new()
        .chain_update(b"confide SIMULATED chip v1\0")
        .chain_update(name)
        .chain_update([0])
        .chain_update(seed)
        .finalize()
        .into()
}

/// The first 16 bytes of SHA-256 of `SIMULATED ` and a name: family and image of a guest.
pub(crate) fn report_identifier(name: &str) -> [u8; 16] {
    let hash = enclave_measurement(name);
    std::array::from_fn(|i| hash[i])
}
