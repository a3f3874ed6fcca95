//! The offsets of the parts of a well-formed quote, so that it can be signed again.

use confide_fake_attester::SimulatedKey;
use sha2::{Digest, Sha256};

use crate::seeds::Forger;

pub(crate) struct Layout {
    /// Header and report: what the attestation key signs.
    pub(crate) signed: usize,
    pub(crate) signature: usize,
    pub(crate) attestation_key: usize,
    pub(crate) qe_report: usize,
    pub(crate) qe_signature: usize,
    pub(crate) authentication_data: usize,
    pub(crate) chain: usize,
    pub(crate) end: usize,
}

impl Layout {
    /// Finds the parts; `None` if a length leads outside of the quote.
    pub(crate) fn parse(quote: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| {
            Some(usize::from(u16::from_le_bytes(quote.get(at..at + 2)?.try_into().ok()?)))
        };
        let u32_at =
            |at: usize| Some(u32::from_le_bytes(quote.get(at..at + 4)?.try_into().ok()?) as usize);
        let version = u16_at(0)?;
        let signed = match version {
            3 => 48 + 384,
            4 => 48 + 584,
            5 => (48 + 6_usize).checked_add(u32_at(50)?)?,
            _ => return None,
        };
        let signature = signed.checked_add(4)?;
        let attestation_key = signature + 64;
        // Version 3 has no frame around the QE report.
        let qe_report = attestation_key + 64 + if version == 3 { 0 } else { 6 };
        let qe_signature = qe_report + 384;
        let authentication_data = qe_signature + 64 + 2;
        let authentication_length = u16_at(authentication_data - 2)?;
        let chain = authentication_data + authentication_length + 6;
        let end = chain.checked_add(u32_at(chain - 4)?)?;
        let layout = Self {
            signed,
            signature,
            attestation_key,
            qe_report,
            qe_signature,
            authentication_data,
            chain,
            end,
        };
        (end <= quote.len()).then_some(layout)
    }

    /// The part that a byte lies in.
    pub(crate) fn part(&self, at: usize) -> &'static str {
        match at {
            _ if at < 48 => "header",
            _ if at < self.signed => "report",
            _ if at < self.signature => "signature length",
            _ if at < self.attestation_key => "signature",
            _ if at < self.qe_report => "attestation key",
            _ if at < self.qe_signature => "QE report",
            _ if at < self.authentication_data - 2 => "QE report's signature",
            _ if at < self.chain => "authentication data",
            _ if at < self.end => "PCK chain",
            _ => "padding",
        }
    }
}

/// Makes all signatures and hashes inside a quote fit what it says.
pub(crate) fn sign_anew(quote: &mut [u8], forger: &Forger) -> Option<()> {
    let layout = Layout::parse(quote)?;
    let platform = forger.variant.platform;
    let authentication_data = &quote[layout.authentication_data..layout.chain - 6];
    let vouched = Sha256::new()
        .chain_update(&quote[layout.attestation_key..layout.attestation_key + 64])
        .chain_update(authentication_data)
        .finalize();
    quote[layout.qe_report + 320..][..32].copy_from_slice(&vouched);
    let report = &quote[layout.qe_report..layout.qe_signature];
    let signature = forger.vendors.sign_as(SimulatedKey::Pck(platform), report);
    quote[layout.qe_signature..][..64].copy_from_slice(&signature);
    let holder = SimulatedKey::AttestationKey(platform);
    let signature = forger.vendors.sign_as(holder, &quote[..layout.signed]);
    quote[layout.signature..][..64].copy_from_slice(&signature);
    Some(())
}

/// Puts another chain into a quote and mends the lengths around it.
pub(crate) fn replace_chain(quote: &mut Vec<u8>, chain: &[u8]) -> Option<()> {
    let layout = Layout::parse(quote)?;
    let version_3 = quote[0] == 3;
    let grown = chain.len() as i64 - (layout.end - layout.chain) as i64;
    quote.splice(layout.chain..layout.end, chain.iter().copied());
    let mut add = |at: usize| {
        let length = u32::from_le_bytes(quote[at..at + 4].try_into().unwrap());
        let length = (i64::from(length) + grown) as u32;
        quote[at..at + 4].copy_from_slice(&length.to_le_bytes());
    };
    add(layout.chain - 4);
    add(layout.signed);
    if !version_3 {
        add(layout.qe_report - 4);
    }
    Some(())
}
