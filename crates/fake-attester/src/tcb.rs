//! The simulated platform's security versions, and the JSON that judges them.
//!
//! TCB info v3 and enclave identity v2 as PCS API v4 gives them: compact JSON, fields in Intel's
//! order, hexadecimal in capitals. The signature covers these very bytes.

use serde::Serialize;

use crate::{
    error::FakeError,
    level::SimulatedTcbLevel,
    measurements,
    options::Tee,
    plan::{Fault, SimulationPlan},
    time::rfc3339,
};

/// The FMSPC: `SIM` in ASCII and zeros, which no real family has.
pub(crate) const FMSPC: [u8; 6] = *b"SIM\0\0\0";
const FOREIGN_FMSPC: [u8; 6] = *b"SIM\0\0\x01";

/// The identity of the provisioning certification enclave.
pub(crate) const PCE_ID: [u8; 2] = [0, 0];

/// The TEE_TCB_SVN of the TD report: module SVN, module version, then what the level demands.
pub(crate) fn tee_tcb_svn(plan: &SimulationPlan) -> [u8; 16] {
    let mut svn = plan.level.tdx_svn();
    svn[0] = if plan.has_fault(Fault::OutOfDateModule) { OLD_MODULE_SVN } else { MODULE_SVN };
    svn[1] = MODULE_VERSION;
    svn
}

/// The version of the module; version 1 selects the module identity `TDX_01`.
const MODULE_VERSION: u8 = 1;
const MODULE_SVN: u8 = 5;
const OLD_MODULE_SVN: u8 = 4;

/// The fields of the simulated quoting enclave, which the QE identity demands.
pub(crate) struct QuotingEnclave {
    pub(crate) isv_prod_id: u16,
    pub(crate) isv_svn: u16,
    id: &'static str,
    good_svn: u16,
    mr_signer: [u8; 32],
}

impl QuotingEnclave {
    /// The enclave with the product numbers and SVNs that Intel's QE and TD QE had in 2025.
    pub(crate) fn for_tee(tee: Tee) -> Self {
        let (id, isv_prod_id, isv_svn) = match tee {
            Tee::Sgx => ("QE", 1, 8),
            Tee::Tdx | Tee::TdxV5 | Tee::Snp => ("TD_QE", 2, 4),
        };
        let mr_signer = measurements::enclave_measurement("quoting enclave mrsigner");
        Self { isv_prod_id, isv_svn, id, good_svn: isv_svn, mr_signer }
    }

    /// The enclave as it runs under `plan`.
    pub(crate) fn for_plan(tee: Tee, plan: &SimulationPlan) -> Self {
        let mut enclave = Self::for_tee(tee);
        if plan.has_fault(Fault::OutOfDateModule) && tee == Tee::Sgx {
            enclave.isv_svn -= 1;
        }
        if plan.has_fault(Fault::ForeignQuotingEnclave) {
            enclave.mr_signer =
                measurements::enclave_measurement("foreign quoting enclave mrsigner");
        }
        enclave
    }

    pub(crate) fn mr_signer(&self) -> [u8; 32] {
        self.mr_signer
    }
}

/// The TCB info, exactly the bytes to sign.
pub(crate) fn tcb_info(tee: Tee, plan: &SimulationPlan) -> Result<String, FakeError> {
    let tdx = tee != Tee::Sgx;
    let info = TcbInfo {
        id: if tdx { "TDX" } else { "SGX" },
        version: 3,
        issue_date: rfc3339(plan.edition.issued_at),
        next_update: rfc3339(plan.edition.valid_until()),
        // Intel's service writes both cases; go-tdx-guest compares with small letters.
        fmspc: hex::encode(if plan.has_fault(Fault::ForeignFmspc) { FOREIGN_FMSPC } else { FMSPC }),
        pce_id: hex::encode_upper(PCE_ID),
        tcb_type: 0,
        tcb_evaluation_data_number: plan.edition.evaluation_number,
        tdx_module: tdx.then(Module::intel),
        tdx_module_identities: tdx.then(module_identities),
        tcb_levels: platform_levels(tdx, plan),
    };
    Ok(serde_json::to_string(&info)?)
}

/// The QE identity, exactly the bytes to sign.
pub(crate) fn qe_identity(tee: Tee, plan: &SimulationPlan) -> Result<String, FakeError> {
    let enclave = QuotingEnclave::for_tee(tee);
    let good = enclave.good_svn;
    let identity = QeIdentity {
        id: enclave.id,
        version: 2,
        issue_date: rfc3339(plan.edition.issued_at),
        next_update: rfc3339(plan.edition.valid_until()),
        tcb_evaluation_data_number: plan.edition.evaluation_number,
        miscselect: "00000000",
        miscselect_mask: "FFFFFFFF",
        attributes: "11000000000000000000000000000000",
        attributes_mask: "FBFFFFFFFFFFFFFF0000000000000000",
        mrsigner: hex::encode_upper(enclave.mr_signer),
        isvprodid: enclave.isv_prod_id,
        tcb_levels: vec![
            enclave_level(good, SimulatedTcbLevel::UpToDate, &[]),
            enclave_level(good - 1, SimulatedTcbLevel::OutOfDate, &["INTEL-SA-SIMULATED-00006"]),
            enclave_level(
                good - 2,
                SimulatedTcbLevel::Revoked,
                &["INTEL-SA-SIMULATED-00006", "INTEL-SA-SIMULATED-00007"],
            ),
        ],
    };
    Ok(serde_json::to_string(&identity)?)
}

fn module_identities() -> Vec<ModuleIdentity> {
    let levels = |good: u8| {
        vec![
            enclave_level(good.into(), SimulatedTcbLevel::UpToDate, &[]),
            enclave_level(
                u16::from(good) - 1,
                SimulatedTcbLevel::OutOfDate,
                &["INTEL-SA-SIMULATED-00001"],
            ),
        ]
    };
    vec![
        ModuleIdentity { id: "TDX_03", module: Module::intel(), tcb_levels: levels(3) },
        ModuleIdentity { id: "TDX_01", module: Module::intel(), tcb_levels: levels(MODULE_SVN) },
    ]
}

fn enclave_level(
    isvsvn: u16,
    level: SimulatedTcbLevel,
    advisories: &'static [&str],
) -> TcbLevel<EnclaveTcb> {
    TcbLevel {
        tcb: EnclaveTcb { isvsvn },
        tcb_date: level.date(),
        tcb_status: level.status(),
        advisory_ids: advisories,
    }
}

fn platform_levels(tdx: bool, plan: &SimulationPlan) -> Vec<TcbLevel<PlatformTcb>> {
    let mut levels: Vec<_> =
        SimulatedTcbLevel::ALL.iter().map(|&level| platform_level(level, tdx)).collect();
    if plan.has_fault(Fault::UnknownTcbStatus) {
        levels[0].tcb_status = "SimulatedUnknownStatus";
    }
    levels
}

fn platform_level(level: SimulatedTcbLevel, tdx: bool) -> TcbLevel<PlatformTcb> {
    TcbLevel {
        tcb: PlatformTcb {
            sgxtcbcomponents: components(level.cpu_svn(), &SGX_COMPONENTS),
            pcesvn: level.pce_svn(),
            tdxtcbcomponents: tdx.then(|| components(level.tdx_svn(), &TDX_COMPONENTS)),
        },
        tcb_date: level.date(),
        tcb_status: level.status(),
        advisory_ids: level.advisories(),
    }
}

fn components(svns: [u8; 16], names: &[(&'static str, &'static str)]) -> Vec<Component> {
    let named = names.iter().copied().map(Some).chain(std::iter::repeat(None));
    svns.into_iter()
        .zip(named)
        .map(|(svn, name)| Component {
            svn,
            category: name.map(|(category, _)| category),
            kind: name.map(|(_, kind)| kind).filter(|kind| !kind.is_empty()),
        })
        .collect()
}

/// The category and the type of the leading components, as PCS names them.
const SGX_COMPONENTS: [(&str, &str); 6] = [
    ("BIOS", "Early Microcode Update"),
    ("OS/VMM", "SGX Late Microcode Update"),
    ("OS/VMM", "TXT SINIT"),
    ("BIOS", ""),
    ("BIOS", ""),
    ("BIOS", ""),
];
const TDX_COMPONENTS: [(&str, &str); 3] =
    [("OS/VMM", "TDX Module"), ("OS/VMM", "TDX Module"), ("OS/VMM", "TDX Late Microcode Update")];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TcbInfo {
    id: &'static str,
    version: u8,
    issue_date: String,
    next_update: String,
    fmspc: String,
    pce_id: String,
    tcb_type: u32,
    tcb_evaluation_data_number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tdx_module: Option<Module>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tdx_module_identities: Option<Vec<ModuleIdentity>>,
    tcb_levels: Vec<TcbLevel<PlatformTcb>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Module {
    mrsigner: String,
    attributes: &'static str,
    attributes_mask: &'static str,
}

impl Module {
    /// The TDX module of Intel: an Intel-signed one shows as all zero (Intel TDX Module Base
    /// Architecture, MRSIGNERSEAM).
    fn intel() -> Self {
        Self {
            mrsigner: "0".repeat(96),
            attributes: "0000000000000000",
            attributes_mask: "FFFFFFFFFFFFFFFF",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModuleIdentity {
    id: &'static str,
    #[serde(flatten)]
    module: Module,
    tcb_levels: Vec<TcbLevel<EnclaveTcb>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TcbLevel<T> {
    tcb: T,
    tcb_date: &'static str,
    tcb_status: &'static str,
    #[serde(rename = "advisoryIDs", skip_serializing_if = "<[_]>::is_empty")]
    advisory_ids: &'static [&'static str],
}

#[derive(Serialize)]
struct PlatformTcb {
    sgxtcbcomponents: Vec<Component>,
    pcesvn: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    tdxtcbcomponents: Option<Vec<Component>>,
}

#[derive(Serialize)]
struct EnclaveTcb {
    isvsvn: u16,
}

#[derive(Serialize)]
struct Component {
    svn: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct QeIdentity {
    id: &'static str,
    version: u8,
    issue_date: String,
    next_update: String,
    tcb_evaluation_data_number: u32,
    miscselect: &'static str,
    miscselect_mask: &'static str,
    attributes: &'static str,
    attributes_mask: &'static str,
    mrsigner: String,
    isvprodid: u16,
    tcb_levels: Vec<TcbLevel<EnclaveTcb>>,
}
