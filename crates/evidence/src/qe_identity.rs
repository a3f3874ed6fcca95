//! Enclave identity version 2: what the quoting enclave must be.
//!
//! Source: Intel SGX and TDX Provisioning Certification Service API, version 4,
//! `EnclaveIdentityV2`. Strict in the same way as [`crate::tcb_info`].

use alloc::{string::ToString, vec::Vec};

use serde::Deserialize;

use crate::{
    json,
    parse_error::ParseError,
    quote::Tee,
    tcb_info::{IsvLevel, check_isv_levels},
};

/// Identity of the quoting enclave: `QE` for SGX, `TD_QE` for TDX.
#[derive(Clone, Debug)]
pub struct QeIdentity {
    /// Which TEE's quoting enclave this is.
    pub tee: Tee,
    /// Unix seconds from which the document holds.
    pub issue_date: u64,
    /// Unix seconds until which it holds.
    pub next_update: u64,
    /// Number of the TCB recovery that the document belongs to.
    pub tcb_evaluation_data_number: u32,
    /// Wanted value of MISCSELECT under the mask.
    pub miscselect: [u8; 4],
    /// Which bits of MISCSELECT are compared.
    pub miscselect_mask: [u8; 4],
    /// Wanted value of ATTRIBUTES under the mask.
    pub attributes: [u8; 16],
    /// Which bits of ATTRIBUTES are compared.
    pub attributes_mask: [u8; 16],
    /// Hash of the enclave's signer.
    pub mrsigner: [u8; 32],
    /// Product number given by the signer.
    pub isv_prod_id: u16,
    /// Levels by ISVSVN, highest first.
    pub tcb_levels: Vec<IsvLevel>,
}

impl QeIdentity {
    /// Reads the JSON; levels that do not fall are refused.
    ///
    /// # Errors
    /// [`ParseError::Json`] or [`ParseError::Text`] if the document is malformed or its levels
    /// do not fall, [`ParseError::Unsupported`] for another version than 2.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let wire: Wire = json::parse_document("QE identity", text.as_bytes())?;
        if wire.version != 2 {
            return Err(ParseError::Unsupported {
                subject: "QE identity version",
                wanted: "2",
                got: wire.version.to_string(),
            });
        }
        check_isv_levels("QE identity", &wire.tcb_levels)?;
        Ok(Self {
            tee: match wire.id {
                WireId::Qe => Tee::Sgx,
                WireId::TdQe => Tee::Tdx,
            },
            issue_date: wire.issue_date,
            next_update: wire.next_update,
            tcb_evaluation_data_number: wire.tcb_evaluation_data_number,
            miscselect: wire.miscselect,
            miscselect_mask: wire.miscselect_mask,
            attributes: wire.attributes,
            attributes_mask: wire.attributes_mask,
            mrsigner: wire.mrsigner,
            isv_prod_id: wire.isvprodid,
            tcb_levels: wire.tcb_levels,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    id: WireId,
    version: u32,
    #[serde(deserialize_with = "json::read_date")]
    issue_date: u64,
    #[serde(deserialize_with = "json::read_date")]
    next_update: u64,
    tcb_evaluation_data_number: u32,
    #[serde(deserialize_with = "json::read_hex_array")]
    miscselect: [u8; 4],
    #[serde(deserialize_with = "json::read_hex_array")]
    miscselect_mask: [u8; 4],
    #[serde(deserialize_with = "json::read_hex_array")]
    attributes: [u8; 16],
    #[serde(deserialize_with = "json::read_hex_array")]
    attributes_mask: [u8; 16],
    #[serde(deserialize_with = "json::read_hex_array")]
    mrsigner: [u8; 32],
    isvprodid: u16,
    tcb_levels: Vec<IsvLevel>,
}

#[derive(Clone, Copy, Deserialize)]
enum WireId {
    #[serde(rename = "QE")]
    Qe,
    #[serde(rename = "TD_QE")]
    TdQe,
}
