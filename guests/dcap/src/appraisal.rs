//! The appraisal of evidence, and the statement that it leads to.

use alloc::boxed::Box;
use core::time::Duration;

use confide_evidence::tcb_info::TcbStatus;
use confide_statement::{Dcap, Measurements, SgxMeasurements, Statement, TdxMeasurements, Verdict};
use confide_verifier::{
    Appraised, Crypto, Endorsements, Evidence, Expect, Policy, Roots, TdMeasurements, UnixTime,
    appraise,
};

use crate::{error::DcapError, input::DcapInput};

/// The program: reads an input, appraises its quote, and states what is true of it.
///
/// Under which root, and how good the platform is, is stated and not judged: that is for whoever
/// reads the statement. What no policy forgives ends the program, and so does a trust domain with
/// a service TD.
///
/// # Errors
/// If the input is malformed or the quote is refused. There is no statement of a refusal: it
/// would say something about bytes that nobody else has seen.
pub fn run(input: &[u8], crypto: &dyn Crypto) -> Result<Statement, DcapError> {
    let DcapInput { at, not_before, not_after, quote, collateral } = DcapInput::decode(input)?;
    let endorsements = Endorsements::from_collateral(collateral).map_err(DcapError::Collateral)?;
    let root = endorsements.root_der().unwrap_or_default();
    let policy = facts_only_policy(Roots::from_sha256(crypto.sha256(&[root])));
    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(at));
    let appraised = appraise(&evidence, &endorsements, &policy, now, crypto)
        .map_err(|rejection| DcapError::Rejected(Box::new(rejection)))?;
    state_facts(&appraised, not_before, not_after).map(Statement::Dcap)
}

/// A policy that leaves to the reader of the statement what the statement says: root, status,
/// advisories, debug, numbers of lists and documents, measurements. With it nothing that appraisal
/// says depends on the instant but whether everything holds at it: there is no time of grace and
/// there are no claims.
fn facts_only_policy(roots: Roots) -> Policy {
    Policy {
        roots,
        tcb_status: Expect::DangerousAny,
        advisories: Expect::DangerousAny,
        dangerous_accept_debug: true,
        ..Policy::default()
    }
}

/// The facts of an appraised quote that hold at every instant from `first` to `last`, Unix seconds.
fn state_facts(appraised: &Appraised, first: u64, last: u64) -> Result<Dcap, DcapError> {
    let platform = appraised.platform();
    let (Some(intel), Some(tcb_status)) = (platform.intel(), appraised.tcb_status()) else {
        return Err(DcapError::NotIntel);
    };
    let (from, until) = (platform.valid_from.max(first), platform.valid_until.min(last));
    if from > until {
        return Err(DcapError::NoInstant { from, until });
    }
    let mut advisories = appraised.advisories().to_vec();
    // Intel's order tells one family's document from another's.
    advisories.sort_unstable();
    advisories.dedup();
    Ok(Dcap {
        verdict: verdict(appraised),
        root_sha256: appraised.root().sha256,
        report_data: platform.report_data.0,
        measurements: measurements(&platform.measurements)?,
        debug: platform.debug,
        tcb_status: tcb_status.as_str().into(),
        advisories,
        tcb_evaluation_data_number: intel.tcb_evaluation_data_number,
        root_crl_issued: intel.root_crl.issued,
        pck_crl_issued: intel.pck_crl.issued,
        valid_from: from,
        valid_until: until,
    })
}

/// Whether the verifier's default policy says yes too, but for the root.
fn verdict(appraised: &Appraised) -> Verdict {
    let good = appraised.tcb_status() == Some(TcbStatus::UpToDate);
    match good && appraised.advisories().is_empty() && !appraised.is_debug() {
        true => Verdict::Accepted,
        false => Verdict::Conditional,
    }
}

fn measurements(of: &confide_verifier::Measurements) -> Result<Measurements, DcapError> {
    match of {
        confide_verifier::Measurements::Tdx(it) => {
            let [rtmr0, rtmr1, rtmr2, rtmr3] = it.rtmrs;
            let TdMeasurements { mrtd, mrconfigid, mrowner, mrownerconfig, .. } = **it;
            Ok(Measurements::Tdx(TdxMeasurements {
                mrtd,
                rtmr0,
                rtmr1,
                rtmr2,
                rtmr3,
                mrconfigid,
                mrowner,
                mrownerconfig,
            }))
        }
        confide_verifier::Measurements::Sgx(it) => Ok(Measurements::Sgx(SgxMeasurements {
            mrenclave: it.mrenclave,
            mrsigner: it.mrsigner,
            isv_prod_id: it.isv_prod_id,
            isv_svn: it.isv_svn,
            config_id: it.config_id,
        })),
        confide_verifier::Measurements::Snp(_) => Err(DcapError::NotIntel),
    }
}
