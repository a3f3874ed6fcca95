//! Works: a guest and an input of some size, the same one for every arm, block and machine.

use std::path::PathBuf;

use confide_arm_line::{Outcome, read_file};
use confide_evidence::collateral::Collateral;
use confide_guest_programs::host::{self, input_from_json};
use confide_prover::DcapGuestInput;
use serde_json::{Value, json};

/// The random seed of all inputs: a proof of one block can be checked in the next, and two machines
/// prove the same.
const SEED: u64 = 20_260_101;

/// Files of the guest `dcap`.
#[derive(clap::Args)]
pub(crate) struct DcapFiles {
    /// The quote, for the work dcap.
    #[arg(long)]
    quote: Option<PathBuf>,
    /// Its endorsements (QuoteCollateralV3, JSON), for the work dcap.
    #[arg(long)]
    collateral: Option<PathBuf>,
    /// A time at which they hold, in seconds since 1970, for the work dcap.
    #[arg(long)]
    at: Option<u64>,
}

/// A work: a guest and its input.
pub(super) struct GuestWork {
    pub(super) name: String,
    pub(super) guest: &'static str,
    pub(super) input: Vec<u8>,
}

impl GuestWork {
    /// `fibonacci-1000`, `fibonacci-sort-3000` (both reports' program: numbers of the sequence put
    /// in order), `sort-1000`, `rsa2048-1024`, `sha256-1024`, `transcript-4096`: a guest and the
    /// size of its sample; `dcap`: the quote of the command line.
    pub(super) fn from_name(name: &str, dcap: &DcapFiles) -> Outcome<Self> {
        if name == "dcap" {
            return Ok(Self {
                name: name.to_string(),
                guest: "dcap",
                input: read_dcap_input(dcap)?,
            });
        }
        let wrong = || format!("param work: wanted a guest and a size, got {name:?}");
        let (kind, size) = name.rsplit_once('-').ok_or_else(wrong)?;
        let size: u32 = size.parse().map_err(|_| wrong())?;
        let (guest, json) = match kind {
            "fibonacci" => ("fibonacci", json!({ "n": size })),
            "fibonacci-sort" => {
                ("sort", json!({ "fibonacci": { "count": size, "place": size / 2 } }))
            }
            "sort" => ("sort", sample_input("sort", size)?),
            "rsa2048" => ("rsa2048", sample_input("rsa2048", size)?),
            "sha256" => ("sha256", sample_input("sha256", size)?),
            "transcript" => ("transcript", sample_input("transcript", size)?),
            _ => return Err(wrong().into()),
        };
        let input = input_from_json(guest, json.to_string().as_bytes())?;
        Ok(Self { name: name.to_string(), guest, input })
    }
}

fn sample_input(guest: &str, size: u32) -> Outcome<Value> {
    Ok(host::sample_input(guest, size, SEED)?)
}

fn read_dcap_input(files: &DcapFiles) -> Outcome<Vec<u8>> {
    let (Some(quote), Some(collateral), Some(at)) = (&files.quote, &files.collateral, files.at)
    else {
        return Err("work dcap: wanted --quote, --collateral and --at".into());
    };
    let (quote, json) = (read_file(quote)?, read_file(collateral)?);
    let it = Collateral::parse(&json)?;
    let parts = DcapGuestInput {
        at,
        within: (0, u64::MAX),
        quote: &quote,
        pck_crl_issuer_chain: &it.pck_crl_issuer_chain,
        root_ca_crl: &it.root_ca_crl,
        pck_crl: &it.pck_crl,
        tcb_info_issuer_chain: &it.tcb_info_issuer_chain,
        tcb_info: &it.tcb_info,
        tcb_info_signature: &it.tcb_info_signature,
        qe_identity_issuer_chain: &it.qe_identity_issuer_chain,
        qe_identity: &it.qe_identity,
        qe_identity_signature: &it.qe_identity_signature,
        pck_certificate_chain: it.pck_certificate_chain.as_deref().unwrap_or_default(),
    };
    Ok(parts.encode())
}
