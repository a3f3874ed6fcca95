//! The input of the guest `dcap`, as `guests/dcap` reads it.
//!
//! The guest's own reader is strict; this writer stands here so that no program that makes an input
//! links the guest and what it needs.

/// First bytes of every input.
const MAGIC: &[u8; 16] = b"confide/dcap/v1\n";

/// A quote, its endorsements, and what the statement may say of time.
#[derive(Clone, Debug)]
pub struct DcapGuestInput<'a> {
    /// Unix seconds at which everything holds; the statement does not show them.
    pub at: u64,
    /// The statement says nothing of instants outside these two, both included.
    pub within: (u64, u64),
    /// The quote.
    pub quote: &'a [u8],
    /// Certificate chain of `pck_crl`'s issuer, PEM.
    pub pck_crl_issuer_chain: &'a str,
    /// Revocation list of the root CA, DER.
    pub root_ca_crl: &'a [u8],
    /// Revocation list of the platform or processor CA, DER.
    pub pck_crl: &'a [u8],
    /// Certificate chain of the TCB info's signer, PEM.
    pub tcb_info_issuer_chain: &'a str,
    /// TCB info as it was signed, JSON.
    pub tcb_info: &'a str,
    /// Raw ECDSA signature over `tcb_info`.
    pub tcb_info_signature: &'a [u8; 64],
    /// Certificate chain of the QE identity's signer, PEM.
    pub qe_identity_issuer_chain: &'a str,
    /// QE identity as it was signed, JSON.
    pub qe_identity: &'a str,
    /// Raw ECDSA signature over `qe_identity`.
    pub qe_identity_signature: &'a [u8; 64],
    /// PCK certificate chain, PEM; empty if the quote has it.
    pub pck_certificate_chain: &'a str,
}

impl DcapGuestInput<'_> {
    /// Encodes the magic, then every field preceded by its length (four bytes, little-endian) and
    /// followed by zeros up to a multiple of four.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.at, self.within.0, self.within.1].map(u64::to_le_bytes);
        let fields: [&[u8]; 12] = [
            numbers.as_flattened(),
            self.quote,
            self.pck_crl_issuer_chain.as_bytes(),
            self.root_ca_crl,
            self.pck_crl,
            self.tcb_info_issuer_chain.as_bytes(),
            self.tcb_info.as_bytes(),
            self.tcb_info_signature,
            self.qe_identity_issuer_chain.as_bytes(),
            self.qe_identity.as_bytes(),
            self.qe_identity_signature,
            self.pck_certificate_chain.as_bytes(),
        ];
        let mut bytes = MAGIC.to_vec();
        for field in fields {
            // A length beyond 4 GiB cannot be read again: the guest refuses far shorter ones.
            let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(field);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_length_and_begins_at_a_word() {
        let parts = DcapGuestInput {
            at: 1,
            within: (0, u64::MAX),
            quote: b"quote",
            pck_crl_issuer_chain: "a",
            root_ca_crl: b"",
            pck_crl: b"crl",
            tcb_info_issuer_chain: "chain",
            tcb_info: "{}",
            tcb_info_signature: &[1; 64],
            qe_identity_issuer_chain: "chain",
            qe_identity: "{}",
            qe_identity_signature: &[2; 64],
            pck_certificate_chain: "",
        };
        let bytes = parts.encode();
        let mut rest = bytes.strip_prefix(MAGIC).unwrap();
        let mut lengths = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            lengths.push(length);
            rest = &after[length.next_multiple_of(4)..];
        }
        assert_eq!(lengths, [24, 5, 1, 0, 3, 5, 2, 64, 5, 2, 64, 0]);
    }
}
