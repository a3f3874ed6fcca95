//! The configfs-tsm attester against a *simulated* tree: the code that asks a kernel, unchanged.

mod namespace;

use std::{fs, path::Path, sync::Arc, thread, time::Duration};

use confide_attester::{AttesterError, Device, Provider, Tsm, TsmOptions, detect_devices_with_tsm};
use confide_evidence::{Attest, ReportData, quote::Quote};
use confide_fake_attester::{
    FakeAttester, FakeAttesterOptions, Mode, MountedTsm, SimulatedPlatform, SnpSigner, Tee,
    TsmFault, TsmProvider, TsmTree,
};
use confide_verifier::{AwsLc, Endorsements, Evidence, Policy, UnixTime, appraise};
use namespace::with_private_mounts;

/// 2026-06-01, in Unix seconds.
const NOW: u64 = 1_780_272_000;

#[test]
fn a_quote_comes_through_the_tree_and_is_accepted() {
    with_private_mounts("a_quote_comes_through_the_tree_and_is_accepted", |folder| {
        for tee in [Tee::Tdx, Tee::TdxV5] {
            let attester = Arc::new(FakeAttester::new(options_of(tee)).unwrap());
            let tree = mount(&attester, folder);
            let tsm = open(folder);
            assert_eq!(tsm.provider(), Provider::TdxGuest);
            let asked = ReportData([0xa5; 64]);
            let quote = tsm.attest(&asked).unwrap();
            accept(&attester, &quote, &asked);
            assert_eq!(tsm.collateral(), None);
            assert_eq!(tree.entry_count(), 0, "the entry was left behind");
            tree.unmount().unwrap();
        }
    });
}

#[test]
fn a_tree_that_is_not_the_kernels_counts_as_simulated() {
    with_private_mounts("a_tree_that_is_not_the_kernels_counts_as_simulated", |folder| {
        let _tree = mount(&fake_attester(), folder);
        let tsm = open(folder);
        assert!(!tsm.is_kernel_tree() && tsm.is_simulated());
        let found = detect_devices_with_tsm(Path::new("/"), folder);
        let found = found.iter().find(|found| found.device == Device::ConfigfsTsm).unwrap();
        assert!(found.present, "{found:?}");
        for wanted in ["provider is tdx_guest", "not configfs"] {
            assert!(found.because.iter().any(|line| line.contains(wanted)), "{found:?}");
        }
    });
}

#[test]
fn callers_side_by_side_each_get_their_own_report() {
    with_private_mounts("callers_side_by_side_each_get_their_own_report", |folder| {
        let tree = mount(&fake_attester(), folder);
        // Entries that others left behind must not matter.
        fs::create_dir(folder.join("report/left-behind")).unwrap();
        let tsm = open(folder);
        thread::scope(|scope| {
            for number in 0..32 {
                let tsm = &tsm;
                scope.spawn(move || {
                    let asked = ReportData([number; 64]);
                    let quote = tsm.attest(&asked).unwrap();
                    assert_eq!(Quote::parse(&quote).unwrap().report_data(), asked);
                });
            }
        });
        assert_eq!(tree.entry_count(), 1);
    });
}

#[test]
fn each_fault_of_a_tree_has_a_name() {
    with_private_mounts("each_fault_of_a_tree_has_a_name", |folder| {
        type ErrorPredicate = fn(&AttesterError) -> bool;
        let tree = mount(&fake_attester(), folder);
        let tsm = open(folder);
        let faults: [(TsmFault, ErrorPredicate); 7] = [
            (TsmFault::TooBig, |e| matches!(e, AttesterError::TooBig { limit: 32_768, .. })),
            (TsmFault::Empty, |e| matches!(e, AttesterError::Empty { .. })),
            (TsmFault::Short, |e| matches!(e, AttesterError::Quote(_))),
            (TsmFault::Race(3), |e| matches!(e, AttesterError::Race { tries: 3 })),
            (TsmFault::ForeignReportData, |e| matches!(e, AttesterError::ReportData { .. })),
            (
                TsmFault::Provider("cca_guest".into()),
                |e| matches!(e, AttesterError::Provider { got } if got == "cca_guest"),
            ),
            (TsmFault::Unloaded, |e| matches!(e, AttesterError::Absent { .. })),
        ];
        for (fault, wanted) in faults {
            tree.inject_fault(Some(fault.clone()));
            let error = tsm.report(&ReportData([1; 64])).unwrap_err();
            assert!(wanted(&error), "{fault:?}: {error}");
            assert_eq!(tree.entry_count(), 0, "{fault:?} left an entry behind");
        }
        tree.inject_fault(None);
        assert!(tsm.report(&ReportData([1; 64])).is_ok());
    });
}

#[test]
fn a_busy_device_and_a_race_are_waited_out() {
    with_private_mounts("a_busy_device_and_a_race_are_waited_out", |folder| {
        let tree = mount(&fake_attester(), folder);
        let tsm = open(folder);
        for fault in [TsmFault::Busy(2), TsmFault::Race(2)] {
            tree.inject_fault(Some(fault.clone()));
            let asked = ReportData([2; 64]);
            let quote = tsm.attest(&asked).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert_eq!(Quote::parse(&quote).unwrap().report_data(), asked);
        }
    });
}

#[test]
fn a_device_that_stays_busy_or_hangs_ends_at_the_deadline() {
    with_private_mounts("a_device_that_stays_busy_or_hangs_ends_at_the_deadline", |folder| {
        let tree = mount(&fake_attester(), folder);
        let patient = open(folder);
        let within = |ms| {
            let deadline = Duration::from_millis(ms);
            Tsm::open(TsmOptions { deadline, ..options(folder) }).unwrap()
        };
        tree.inject_fault(Some(TsmFault::Busy(u32::MAX)));
        // The pauses double: after 1,240 ms the next one would be too long, and half the time is
        // left for a thread that wakes late.
        let error = within(2500).report(&ReportData::ZERO).unwrap_err();
        assert!(matches!(error, AttesterError::Busy { .. }), "{error}");
        tree.inject_fault(Some(TsmFault::Slow(Duration::from_secs(2))));
        let error = within(300).report(&ReportData::ZERO).unwrap_err();
        assert!(matches!(error, AttesterError::Deadline { .. }), "{error}");
        tree.inject_fault(None);
        assert!(patient.report(&ReportData::ZERO).is_ok(), "the device did not come back");
    });
}

#[test]
fn an_snp_tree_gives_reports_with_their_endorsements() {
    with_private_mounts("an_snp_tree_gives_reports_with_their_endorsements", |folder| {
        for signer in [SnpSigner::Vcek, SnpSigner::Vlek] {
            let attester = Arc::new(snp(signer));
            let tree = mount(&attester, folder);
            let tsm = Tsm::open(TsmOptions { privlevel: Some(1), ..options(folder) }).unwrap();
            assert_eq!(tsm.provider(), Provider::SevGuest);
            let asked = ReportData([3; 64]);
            assert_eq!(tsm.attest(&asked).unwrap(), attester.quote(&asked));
            let endorsements = tsm.collateral().unwrap();
            let endorsements: serde_json::Value = serde_json::from_slice(&endorsements).unwrap();
            let key = hex::encode(attester.endorsement_key_der().unwrap());
            assert_eq!(endorsements["endorsement_key"], key);
            assert_eq!(endorsements["chain"], attester.chain_pem().unwrap());
            assert!(endorsements.get("crl").is_none(), "a host's table has no revocation list");
            tree.unmount().unwrap();
        }
    });
}

#[test]
fn an_snp_tree_without_a_chain_or_with_a_wrong_report_is_seen() {
    with_private_mounts("an_snp_tree_without_a_chain_or_with_a_wrong_report_is_seen", |folder| {
        let attester = snp(SnpSigner::Vcek);
        let tree = TsmTree::with_reports(TsmProvider::Sev, move |data| attester.quote(data));
        let tree = tree.mount(folder).unwrap();
        let tsm = open(folder);
        tsm.report(&ReportData::ZERO).unwrap();
        assert_eq!(tsm.collateral(), None);
        let level = Tsm::open(TsmOptions { privlevel: Some(4), ..options(folder) }).unwrap();
        let error = level.report(&ReportData::ZERO).unwrap_err();
        assert!(matches!(error, AttesterError::Io { action: "write", .. }), "{error}");
        tree.inject_fault(Some(TsmFault::Short));
        let error = tsm.report(&ReportData::ZERO).unwrap_err();
        assert!(matches!(error, AttesterError::Length { got: 1183, .. }), "{error}");
    });
}

#[test]
fn a_machine_without_a_tree_is_named() {
    let absent = TsmOptions { root: "/nonexistent/tsm".into(), ..TsmOptions::default() };
    assert!(matches!(Tsm::open(absent), Err(AttesterError::Absent { .. })));
}

/// Checks the behaviour of the simulated tree on which the other tests rely.
#[test]
fn the_tree_has_the_manners_of_configfs() {
    with_private_mounts("the_tree_has_the_manners_of_configfs", |folder| {
        let _tree = mount(&fake_attester(), folder);
        let entry = folder.join("report/mine");
        let errno = |outcome: std::io::Result<()>| outcome.unwrap_err().raw_os_error();
        fs::create_dir(&entry).unwrap();
        assert_eq!(errno(fs::create_dir(&entry)), Some(17), "EEXIST");
        assert_eq!(errno(fs::create_dir(folder.join("other"))), Some(1), "EPERM");
        assert_eq!(errno(fs::write(entry.join("inblob"), [0; 65])), Some(27), "EFBIG");
        assert_eq!(errno(fs::read(entry.join("outblob")).map(drop)), Some(22), "EINVAL");
        assert_eq!(errno(fs::read(entry.join("inblob")).map(drop)), Some(13), "EACCES");
        assert_eq!(errno(fs::write(entry.join("provider"), "x")), Some(13), "EACCES");
        assert_eq!(fs::read_to_string(entry.join("generation")).unwrap(), "0\n");
        // The length is only looked at when the report is made.
        fs::write(entry.join("inblob"), [0; 63]).unwrap();
        assert_eq!(fs::read_to_string(entry.join("generation")).unwrap(), "1\n");
        assert_eq!(errno(fs::read(entry.join("outblob")).map(drop)), Some(22), "EINVAL");
        fs::write(entry.join("inblob"), [4; 64]).unwrap();
        let quote = fs::read(entry.join("outblob")).unwrap();
        assert_eq!(Quote::parse(&quote).unwrap().report_data(), ReportData([4; 64]));
        assert_eq!(fs::read_to_string(entry.join("provider")).unwrap(), "tdx_guest\n");
        let mut names: Vec<_> = fs::read_dir(&entry)
            .unwrap()
            .map(|found| found.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["generation", "inblob", "outblob", "provider"]);
        fs::remove_dir(&entry).unwrap();
        assert!(!entry.exists());
    });
}

fn fake_attester() -> Arc<FakeAttester> {
    Arc::new(FakeAttester::new(options_of(Tee::Tdx)).unwrap())
}

fn snp(signer: SnpSigner) -> FakeAttester {
    let variant = SimulatedPlatform { signer, ..SimulatedPlatform::default() };
    FakeAttester::with_variant(options_of(Tee::Snp), variant, None).unwrap()
}

fn options_of(tee: Tee) -> FakeAttesterOptions {
    FakeAttesterOptions { seed: [7; 32], tee, debug: false, issued_at: NOW, mode: Mode::Raw }
}

fn mount(attester: &Arc<FakeAttester>, folder: &Path) -> MountedTsm {
    TsmTree::new(Arc::clone(attester)).unwrap().mount(folder).unwrap()
}

fn options(folder: &Path) -> TsmOptions {
    TsmOptions { root: folder.into(), ..TsmOptions::default() }
}

fn open(folder: &Path) -> Tsm {
    Tsm::open(options(folder)).unwrap()
}

fn accept(attester: &FakeAttester, quote: &[u8], asked: &ReportData) {
    let policy = Policy::from_toml(&attester.policy_toml()).unwrap();
    let collateral = attester.collateral_json();
    let endorsements = Endorsements::parse(collateral.as_bytes()).unwrap();
    let evidence =
        Evidence { quote, claims: None, report_data: Some(*asked), gpu: None, binding: None };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    appraise(&evidence, &endorsements, &policy, now, &AwsLc).unwrap();
}
