//! TCB info version 3: which security versions of a platform are up to date.
//!
//! Source: Intel SGX and TDX Provisioning Certification Service API, version 4, `TcbInfoV3`.
//! Unknown keys, repeated keys and unknown statuses are refused: the meaning of a signed document
//! must be known as a whole.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::{cmp::Reverse, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

use crate::{json, parse_error::ParseError, quote::Tee};

/// Most TCB levels (platform, module or QE) in one document: 20 are seen in the field.
const TCB_LEVELS_MAX: usize = 256;

/// Intel's verdict on a TCB level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TcbStatus {
    /// The platform is up to date.
    UpToDate,
    /// Software in the TEE needs mitigations of its own.
    SwHardeningNeeded,
    /// The platform needs another configuration.
    ConfigurationNeeded,
    /// Software needs mitigations of its own, and the platform needs another configuration.
    ConfigurationAndSwHardeningNeeded,
    /// The platform misses security updates.
    OutOfDate,
    /// The platform misses updates and needs another configuration.
    OutOfDateConfigurationNeeded,
    /// The platform's keys are no longer to be trusted. Never accepted.
    Revoked,
    /// The trust domain was launched under an out-of-date TDX module, and the one that runs now is
    /// not: it has to be launched again. No document says this; it follows from a TDX 1.5 report.
    TdRelaunchAdvised,
    /// The same, and the platform needs another configuration.
    TdRelaunchAdvisedConfigurationNeeded,
}

impl TcbStatus {
    /// The statuses that a document can give a level, best first.
    pub const ALL: [TcbStatus; 7] = [
        TcbStatus::UpToDate,
        TcbStatus::SwHardeningNeeded,
        TcbStatus::ConfigurationNeeded,
        TcbStatus::ConfigurationAndSwHardeningNeeded,
        TcbStatus::OutOfDate,
        TcbStatus::OutOfDateConfigurationNeeded,
        TcbStatus::Revoked,
    ];

    /// The statuses that follow from comparing two levels; no document has them.
    const DERIVED: [TcbStatus; 2] =
        [TcbStatus::TdRelaunchAdvised, TcbStatus::TdRelaunchAdvisedConfigurationNeeded];

    /// Intel's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            TcbStatus::UpToDate => "UpToDate",
            TcbStatus::SwHardeningNeeded => "SWHardeningNeeded",
            TcbStatus::ConfigurationNeeded => "ConfigurationNeeded",
            TcbStatus::ConfigurationAndSwHardeningNeeded => "ConfigurationAndSWHardeningNeeded",
            TcbStatus::OutOfDate => "OutOfDate",
            TcbStatus::OutOfDateConfigurationNeeded => "OutOfDateConfigurationNeeded",
            TcbStatus::Revoked => "Revoked",
            TcbStatus::TdRelaunchAdvised => "TDRelaunchAdvised",
            TcbStatus::TdRelaunchAdvisedConfigurationNeeded => {
                "TDRelaunchAdvisedConfigurationNeeded"
            }
        }
    }
}

impl fmt::Display for TcbStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TcbStatus {
    type Err = UnknownTcbStatus;

    fn from_str(text: &str) -> Result<Self, UnknownTcbStatus> {
        status_from_text(TcbStatus::ALL.into_iter().chain(TcbStatus::DERIVED), text)
    }
}

fn status_from_text(
    mut known: impl Iterator<Item = TcbStatus>,
    text: &str,
) -> Result<TcbStatus, UnknownTcbStatus> {
    let found = known.find(|status| status.as_str() == text);
    found.ok_or_else(|| UnknownTcbStatus(text.chars().take(64).collect()))
}

/// A TCB status that Intel has not documented, cut to 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TCB status `{0}` is unknown")]
pub struct UnknownTcbStatus(pub String);

/// Reads a status that a signed document can give; the derived ones are refused.
impl<'de> Deserialize<'de> for TcbStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListedStatus(TcbStatus);
        impl FromStr for ListedStatus {
            type Err = UnknownTcbStatus;

            fn from_str(text: &str) -> Result<Self, UnknownTcbStatus> {
                status_from_text(TcbStatus::ALL.into_iter(), text).map(ListedStatus)
            }
        }
        json::deserialize_from_str::<D, ListedStatus>(deserializer).map(|listed| listed.0)
    }
}

/// TCB info of one platform family (FMSPC).
#[derive(Clone, Debug)]
pub struct TcbInfo {
    /// The TEE that the levels are for: SGX or TDX.
    pub tee: Tee,
    /// Unix seconds from which the document holds.
    pub issue_date: u64,
    /// Unix seconds until which it holds.
    pub next_update: u64,
    /// Platform family: Family-Model-Stepping-Platform-CustomSKU.
    pub fmspc: [u8; 6],
    /// Identifier of the provisioning certification enclave.
    pub pce_id: [u8; 2],
    /// Number of the TCB recovery that the document belongs to.
    pub tcb_evaluation_data_number: u32,
    /// Signer and attributes that the TDX module must have where it has no identity of its own (TDX only).
    pub tdx_module: Option<TdxModule>,
    /// Module identities by major version, `TDX_01` and so on (TDX only).
    pub tdx_module_identities: Vec<TdxModuleIdentity>,
    /// Levels, highest security versions first.
    pub tcb_levels: Vec<TcbLevel>,
}

impl TcbInfo {
    /// Reads the JSON; the platform's levels come out in descending order whatever order they had,
    /// as Intel's library has it.
    ///
    /// # Errors
    /// [`ParseError::Json`] or [`ParseError::Text`] if the document is malformed or contradicts
    /// itself, [`ParseError::Unsupported`] for another version than 3, [`ParseError::TooMany`] over
    /// 256 levels.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let wire: Wire = json::parse_document("TCB info", text.as_bytes())?;
        let tee = match (wire.id, wire.tdx_module.is_some()) {
            (WireId::Sgx, false) if wire.tdx_module_identities.is_empty() => Tee::Sgx,
            (WireId::Tdx, true) => Tee::Tdx,
            _ => return Err(shape_error("tdxModule in TDX documents and nowhere else")),
        };
        if wire.version != 3 {
            return Err(ParseError::Unsupported {
                subject: "TCB info version",
                wanted: "3",
                got: wire.version.to_string(),
            });
        }
        let mut tcb_levels = wire.tcb_levels;
        if tcb_levels.iter().any(|level| level.tcb.tdx.is_some() != (tee == Tee::Tdx)) {
            return Err(shape_error("tdxtcbcomponents in TDX documents and nowhere else"));
        }
        check_levels(tcb_levels.len())?;
        tcb_levels.sort_by_key(|level| Reverse((level.tcb.sgx, level.tcb.pce_svn, level.tcb.tdx)));
        let mut tdx_module_identities = wire.tdx_module_identities;
        check_levels(tdx_module_identities.len())?;
        tdx_module_identities.sort_by_key(|identity| identity.version);
        if tdx_module_identities.windows(2).any(|pair| pair[0].version == pair[1].version) {
            return Err(shape_error("one module identity per version"));
        }
        for identity in &tdx_module_identities {
            check_isv_levels("TCB info", &identity.tcb_levels)?;
        }
        Ok(Self {
            tee,
            issue_date: wire.issue_date,
            next_update: wire.next_update,
            fmspc: wire.fmspc,
            pce_id: wire.pce_id,
            tcb_evaluation_data_number: wire.tcb_evaluation_data_number,
            tdx_module: wire.tdx_module,
            tdx_module_identities,
            tcb_levels,
        })
    }
}

/// A combination of security versions and Intel's verdict on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TcbLevel {
    /// The least versions that a platform of this level has.
    pub tcb: Tcb,
    /// Unix seconds at which the level was the newest.
    #[serde(deserialize_with = "json::read_date")]
    pub tcb_date: u64,
    /// The status that Intel gives this level.
    pub tcb_status: TcbStatus,
    /// Advisories that apply, such as `INTEL-SA-00615`.
    #[serde(rename = "advisoryIDs", default)]
    pub advisory_ids: Vec<String>,
}

/// The security versions of a level.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcb {
    /// The sixteen SGX components.
    #[serde(rename = "sgxtcbcomponents", deserialize_with = "read_components")]
    pub sgx: [u8; 16],
    /// Version of the provisioning certification enclave.
    #[serde(rename = "pcesvn")]
    pub pce_svn: u16,
    /// The sixteen TDX components (TDX only).
    #[serde(rename = "tdxtcbcomponents", default, deserialize_with = "read_optional_components")]
    pub tdx: Option<[u8; 16]>,
}

/// Signer and attributes that a TDX module must have.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TdxModule {
    /// Hash of the module's signer.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub mrsigner: [u8; 48],
    /// Attributes that the module must have under the mask.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub attributes: [u8; 8],
    /// Which bits of the attributes are compared; the others must be zero.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub attributes_mask: [u8; 8],
}

/// A TDX module of one major version, with levels of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TdxModuleIdentity {
    /// The major version, from `TDX_xx` (hexadecimal).
    #[serde(rename = "id", deserialize_with = "read_module_version")]
    pub version: u8,
    /// Hash of the module's signer.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub mrsigner: [u8; 48],
    /// Attributes that the module must have under the mask.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub attributes: [u8; 8],
    /// Which bits of the attributes are compared; the others must be zero.
    #[serde(deserialize_with = "json::read_hex_array")]
    pub attributes_mask: [u8; 8],
    /// Levels by ISVSVN, highest first.
    pub tcb_levels: Vec<IsvLevel>,
}

/// A level that is told by one security version: of a TDX module or of a quoting enclave.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IsvLevel {
    tcb: IsvTcb,
    /// Unix seconds at which the level was the newest.
    #[serde(deserialize_with = "json::read_date")]
    pub tcb_date: u64,
    /// The status that Intel gives this level.
    pub tcb_status: TcbStatus,
    /// Advisories that apply.
    #[serde(rename = "advisoryIDs", default)]
    pub advisory_ids: Vec<String>,
}

impl IsvLevel {
    /// The least ISVSVN of this level.
    pub fn isv_svn(&self) -> u16 {
        self.tcb.isvsvn
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IsvTcb {
    isvsvn: u16,
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
    #[serde(deserialize_with = "json::read_hex_array")]
    fmspc: [u8; 6],
    #[serde(deserialize_with = "json::read_hex_array")]
    pce_id: [u8; 2],
    #[serde(deserialize_with = "read_zero_tcb_type", rename = "tcbType")]
    _tcb_type: (),
    tcb_evaluation_data_number: u32,
    tdx_module: Option<TdxModule>,
    #[serde(default)]
    tdx_module_identities: Vec<TdxModuleIdentity>,
    tcb_levels: Vec<TcbLevel>,
}

#[derive(Clone, Copy, Deserialize)]
enum WireId {
    #[serde(rename = "SGX")]
    Sgx,
    #[serde(rename = "TDX")]
    Tdx,
}

pub(crate) fn check_levels(count: usize) -> Result<(), ParseError> {
    if count > TCB_LEVELS_MAX {
        return Err(ParseError::TooMany { subject: "tcbLevels", limit: TCB_LEVELS_MAX });
    }
    Ok(())
}

/// Levels of a module or enclave have to come highest first: the first that is reached counts, and
/// verifiers differ on whether they sort.
pub(crate) fn check_isv_levels(
    subject: &'static str,
    levels: &[IsvLevel],
) -> Result<(), ParseError> {
    check_levels(levels.len())?;
    if levels.windows(2).any(|pair| pair[0].isv_svn() < pair[1].isv_svn()) {
        let reason = "isvsvn levels in descending order".to_string();
        return Err(ParseError::Json { subject, reason });
    }
    Ok(())
}

fn shape_error(reason: &str) -> ParseError {
    ParseError::Json { subject: "TCB info", reason: reason.to_string() }
}

/// Reads `tcbType`, which must be 0: it says how components are compared, and no other type is defined.
fn read_zero_tcb_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Ok(()),
        other => Err(de::Error::custom(format_args!("tcbType: wanted 0, got {other}"))),
    }
}

fn read_module_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    json::read_text_with(deserializer, |text| {
        let mut version = [0];
        let digits = text.strip_prefix("TDX_").unwrap_or_default();
        let read = hex::decode_to_slice(digits, &mut version);
        read.map(|()| version[0]).map_err(|_| "wanted TDX_ and two digits")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Component {
    svn: u8,
    #[serde(default, rename = "category")]
    _category: de::IgnoredAny,
    #[serde(default, rename = "type")]
    _kind: de::IgnoredAny,
}

fn read_components<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
    let listed = <[Component; 16]>::deserialize(deserializer)?;
    Ok(listed.map(|component| component.svn))
}

fn read_optional_components<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<[u8; 16]>, D::Error> {
    read_components(deserializer).map(Some)
}
