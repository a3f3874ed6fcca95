//! What the program reads: a quote, its endorsements, an instant, and how far the statement may
//! reach.

use alloc::{string::String, vec::Vec};

use confide_evidence::collateral::{COLLATERAL_LENGTH_MAX, Collateral};

use crate::error::DcapError;

/// First bytes of every input.
const MAGIC: &[u8; 16] = b"confide/dcap/v1\n";
/// The longest quote that is read; the verifier reads no longer one either.
pub const QUOTE_LENGTH_MAX: usize = 64 * 1024;
/// The longest input: the longest quote and collateral.
pub const INPUT_LENGTH_MAX: usize = QUOTE_LENGTH_MAX + COLLATERAL_LENGTH_MAX;

/// The input of the program `dcap`.
#[derive(Clone, Debug)]
pub struct DcapInput {
    /// An instant, Unix seconds, at which everything holds; the statement does not show it.
    pub at: u64,
    /// The statement covers no instant before this one.
    pub not_before: u64,
    /// The statement covers no instant after this one.
    pub not_after: u64,
    /// The quote, with everything that came with it.
    pub quote: Vec<u8>,
    /// Its endorsements.
    pub collateral: Collateral,
}

impl DcapInput {
    /// The input for a quote and its collateral (`QuoteCollateralV3` JSON) at one instant; the
    /// statement reaches as far as it can.
    pub fn new(quote: &[u8], collateral_json: &[u8], at: u64) -> Result<Self, DcapError> {
        let collateral = Collateral::parse(collateral_json).map_err(DcapError::Collateral)?;
        Ok(Self { at, not_before: 0, not_after: u64::MAX, quote: quote.into(), collateral })
    }

    /// The bytes that the program reads: the magic, then every field preceded by its length (four
    /// bytes, little-endian) and followed by zeros up to a multiple of four, so that the VM finds
    /// each aligned.
    pub fn encode(&self) -> Vec<u8> {
        let Collateral { pck_certificate_chain, .. } = &self.collateral;
        let mut bytes = MAGIC.to_vec();
        let numbers = [self.at, self.not_before, self.not_after].map(u64::to_le_bytes);
        let chain = pck_certificate_chain.as_deref().unwrap_or_default();
        let it = &self.collateral;
        let fields: [&[u8]; 12] = [
            numbers.as_flattened(),
            &self.quote,
            it.pck_crl_issuer_chain.as_bytes(),
            &it.root_ca_crl,
            &it.pck_crl,
            it.tcb_info_issuer_chain.as_bytes(),
            it.tcb_info.as_bytes(),
            &it.tcb_info_signature,
            it.qe_identity_issuer_chain.as_bytes(),
            it.qe_identity.as_bytes(),
            &it.qe_identity_signature,
            chain.as_bytes(),
        ];
        for field in fields {
            // Lengths are bounded by those of quote and collateral.
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(field);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    /// Reads what [`Self::encode`] wrote, and nothing else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DcapError> {
        if bytes.len() > INPUT_LENGTH_MAX {
            return Err(DcapError::TooLong { limit: INPUT_LENGTH_MAX, got: bytes.len() });
        }
        let rest = bytes.strip_prefix(MAGIC).ok_or(DcapError::Input { field: "magic" })?;
        let mut fields = FieldReader(rest);
        let numbers = fields.array::<24>("instants")?;
        let number = |at: usize| u64::from_le_bytes(numbers.as_chunks().0[at]);
        let (at, not_before, not_after) = (number(0), number(1), number(2));
        let quote = fields.next_field("quote")?;
        if quote.len() > QUOTE_LENGTH_MAX {
            return Err(DcapError::TooLong { limit: QUOTE_LENGTH_MAX, got: quote.len() });
        }
        let collateral = Collateral {
            pck_crl_issuer_chain: fields.text("pck_crl_issuer_chain")?,
            root_ca_crl: fields.next_field("root_ca_crl")?.into(),
            pck_crl: fields.next_field("pck_crl")?.into(),
            tcb_info_issuer_chain: fields.text("tcb_info_issuer_chain")?,
            tcb_info: fields.text("tcb_info")?,
            tcb_info_signature: *fields.array("tcb_info_signature")?,
            qe_identity_issuer_chain: fields.text("qe_identity_issuer_chain")?,
            qe_identity: fields.text("qe_identity")?,
            qe_identity_signature: *fields.array("qe_identity_signature")?,
            pck_certificate_chain: Some(fields.text("pck_certificate_chain")?)
                .filter(|chain| !chain.is_empty()),
        };
        match fields.0 {
            [] => Ok(Self { at, not_before, not_after, quote: quote.into(), collateral }),
            _ => Err(DcapError::Input { field: "end" }),
        }
    }
}

struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn next_field(&mut self, field: &'static str) -> Result<&'a [u8], DcapError> {
        let malformed = DcapError::Input { field };
        let (length, rest) = self.0.split_first_chunk().ok_or(malformed.clone())?;
        let length = u32::from_le_bytes(*length) as usize;
        let (bytes, rest) = rest.split_at_checked(length).ok_or(malformed.clone())?;
        let padding = length.next_multiple_of(4) - length;
        let (padding, rest) = rest.split_at_checked(padding).ok_or(malformed.clone())?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(malformed);
        }
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<&'a [u8; N], DcapError> {
        self.next_field(field)?.try_into().map_err(|_| DcapError::Input { field })
    }

    fn text(&mut self, field: &'static str) -> Result<String, DcapError> {
        let text = core::str::from_utf8(self.next_field(field)?);
        text.map(String::from).map_err(|_| DcapError::Input { field })
    }
}
