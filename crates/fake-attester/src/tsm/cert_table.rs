//! The certificate table that a host gives along with an SNP report.
//!
//! SEV-ES Guest-Hypervisor Communication Block, 4.1.8.1: GUID in the order of its text, offset
//! and length as little-endian u32 for each certificate, then an entry of zeros, then the DER.

use confide_evidence::pem;

use crate::{attester::FakeAttester, snp::SnpSigner};

const VCEK: u128 = 0x63da758d_e664_4564_adc5_f4b93be8accd;
const VLEK: u128 = 0xa8074bc2_a25a_483e_aae6_39c045a0b8a1;
const ASK: u128 = 0x4ab7b379_bbac_4fe4_a02f_05aef327c782;
const ARK: u128 = 0xc0b406a4_a803_4952_9743_3fb6014cd0ae;
const ENTRY_LENGTH: usize = 24;

/// The table of this attester's host; empty if it is not a SNP host.
pub(super) fn host_certificate_table(attester: &FakeAttester) -> Vec<u8> {
    let (Some(key), Some(chain)) = (attester.endorsement_key_der(), attester.chain_pem()) else {
        return Vec::new();
    };
    let signer = match attester.variant().signer {
        SnpSigner::Vcek => VCEK,
        SnpSigner::Vlek => VLEK,
    };
    let chain = pem::decode_chain("simulated chain", chain.as_bytes()).unwrap_or_default();
    let certificates = [(signer, key.to_vec())]
        .into_iter()
        .chain([ASK, ARK].into_iter().zip(chain))
        .collect::<Vec<_>>();
    encode_table(&certificates)
}

fn encode_table(certificates: &[(u128, Vec<u8>)]) -> Vec<u8> {
    let mut offset = ENTRY_LENGTH * (certificates.len() + 1);
    let mut table = Vec::new();
    for (guid, der) in certificates {
        table.extend(guid.to_be_bytes());
        // A table has some 5 KB, so that offset and length fit.
        table.extend((offset as u32).to_le_bytes());
        table.extend((der.len() as u32).to_le_bytes());
        offset += der.len();
    }
    table.extend([0; ENTRY_LENGTH]);
    table.extend(certificates.iter().flat_map(|(_, der)| der));
    table
}
