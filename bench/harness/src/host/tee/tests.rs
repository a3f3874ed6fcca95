//! Trees and leaves made by hand, after what such machines are known to show.

use super::{
    super::{cpuid::CpuidLeaves, kernel_log::KernelLog, root::FakeTree},
    signal::{SignalMeaning, TeeKind},
    summary::{SignalVerdict, TeeSummary},
};

const AMD: CpuidLeaves = CpuidLeaves {
    hypervisor_present: true,
    vendor: *b"AuthenticAMD",
    hypervisor: Some(*b"KVMKVMKVM\0\0\0"),
    tdx: None,
    amd_encryption: Some(0),
    hyperv_isolation: None,
};

const INTEL: CpuidLeaves =
    CpuidLeaves { vendor: *b"GenuineIntel", tdx: Some([0; 12]), amd_encryption: None, ..AMD };

const TDX: CpuidLeaves = CpuidLeaves { tdx: Some(*b"IntelTDX    "), ..INTEL };

const SNP: CpuidLeaves = CpuidLeaves { amd_encryption: Some(0b1_1010), ..AMD };

fn flags(names: &str) -> String {
    format!("processor\t: 0\nflags\t\t: fpu hypervisor {names}\n")
}

fn log(lines: &str) -> KernelLog {
    KernelLog::parse(&format!("5,0,0,-;Linux version 6.8\n{lines}"))
}

#[test]
fn a_tdx_guest_shows_signs_that_agree() {
    let tree = FakeTree::new(
        "tdx",
        &[
            ("/dev/tdx_guest", ""),
            ("/proc/cpuinfo", &flags("tdx_guest")),
            ("/sys/kernel/config/tsm/report/one/provider", "tdx_guest\n"),
        ],
    );
    let mut table = vec![0; 36];
    table.extend([2, 0]);
    tree.write_file("/sys/firmware/acpi/tables/CCEL", &table);
    let log = log("6,9,9,-;Memory Encryption Features active: Intel TDX\n");
    let tee = TeeSummary::read(&tree.root, Some(&TDX), &log);
    assert_eq!((tee.reading, tee.kind), (SignalVerdict::Signs, Some(TeeKind::Tdx)), "{tee:?}");
    let sources = [
        "/dev/tdx_guest",
        "cpuid 0x21",
        "cpu flag tdx_guest",
        "kernel log",
        "configfs-tsm",
        "acpi table CCEL",
    ];
    assert_eq!(tee.agree, sources);
    assert!(tee.text().contains("a hint, not proof"), "{}", tee.text());
}

#[test]
fn an_snp_guest_is_known_by_device_register_and_log_in_both_wordings() {
    let tree = FakeTree::new("snp", &[("/dev/sev-guest", ""), ("/proc/cpuinfo", &flags(""))]);
    for line in [
        "Memory Encryption Features active: AMD SEV SEV-ES SEV-SNP",
        "AMD Memory Encryption Features active: SEV SEV-ES SEV-SNP",
    ] {
        let tee = TeeSummary::read(&tree.root, Some(&SNP), &log(&format!("6,9,9,-;{line}\n")));
        assert_eq!(
            (tee.reading, tee.kind),
            (SignalVerdict::Signs, Some(TeeKind::SevSnp)),
            "{tee:?}"
        );
        assert_eq!(tee.agree, ["/dev/sev-guest", "kernel log"]);
        assert!(tee.unread.contains(&"msr SEV_STATUS".to_owned()));
    }
}

#[test]
fn the_register_of_sev_tells_what_is_on() {
    use std::{io::Write, os::unix::fs::FileExt};
    let tree = FakeTree::new("msr", &[("/dev/cpu/0/msr", ""), ("/proc/cpuinfo", &flags(""))]);
    for (status, reading, kind) in [
        (0u64, SignalVerdict::NoSign, None),
        (1, SignalVerdict::Signs, Some(TeeKind::Sev)),
        (3, SignalVerdict::Signs, Some(TeeKind::SevEs)),
    ] {
        let mut file =
            std::fs::File::options().write(true).open(tree.root.path("/dev/cpu/0/msr")).unwrap();
        file.write_all_at(&status.to_le_bytes(), 0xc001_0131).unwrap();
        file.flush().unwrap();
        let tee = TeeSummary::read(&tree.root, Some(&SNP), &KernelLog::default());
        assert_eq!((tee.reading, tee.kind), (reading, kind), "{status}: {tee:?}");
    }
}

#[test]
fn an_azure_guest_lies_behind_a_paravisor_which_hides_the_hardware() {
    let azure = |name: &str| {
        FakeTree::new(
            name,
            &[
                ("/proc/cpuinfo", &flags("")),
                ("/dev/tpm0", ""),
                ("/sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
                ("/sys/class/dmi/id/product_name", "Virtual Machine\n"),
                ("/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n"),
            ],
        )
    };
    let tree = azure("azure-snp");
    let hyperv = CpuidLeaves { hypervisor: Some(*b"Microsoft Hv"), ..AMD };
    let lines = "6,8,9,-;Hyper-V: Isolation Config: Group A 0x1, Group B 0xba2\n\
                 6,9,9,-;Memory Encryption Features active: AMD SEV\n";
    // The paravisor's guest is announced as SEV alone; that it is SNP is told by Hyper-V.
    let tee = TeeSummary::read(&tree.root, Some(&hyperv), &log(lines));
    assert!(tee.paravisor);
    assert_eq!((tee.kind, tee.reading), (Some(TeeKind::SevSnp), SignalVerdict::Signs), "{tee:?}");
    assert_eq!(tee.agree, ["kernel log, Hyper-V"]);

    let tree = azure("azure-tdx");
    let hyperv = CpuidLeaves {
        hypervisor: Some(*b"Microsoft Hv"),
        hyperv_isolation: Some([1, 0xba3]),
        ..INTEL
    };
    let tee = TeeSummary::read(&tree.root, Some(&hyperv), &KernelLog::default());
    assert_eq!((tee.kind, tee.reading), (Some(TeeKind::Tdx), SignalVerdict::Signs), "{tee:?}");
    assert_eq!(tee.agree, ["cpuid 0x4000000c"]);
    assert!(tee.signals.iter().any(|s| s.source == "dmi asset tag"));
    assert!(tee.text().contains("paravisor"), "{}", tee.text());
}

#[test]
fn a_host_that_can_start_such_guests_is_none_itself() {
    let tree = FakeTree::new(
        "host",
        &[
            ("/dev/sev", ""),
            ("/proc/cpuinfo", "flags\t\t: fpu sme sev sev_es sev_snp\n"),
            ("/sys/module/kvm_amd/parameters/sev_snp", "Y\n"),
        ],
    );
    let metal = CpuidLeaves {
        hypervisor_present: false,
        hypervisor: None,
        amd_encryption: Some(0x0101_fd3f),
        ..AMD
    };
    let log = log("6,9,9,-;Memory Encryption Features active: AMD SME\n");
    let tee = TeeSummary::read(&tree.root, Some(&metal), &log);
    assert_eq!((tee.reading, tee.kind), (SignalVerdict::NoSign, None), "{tee:?}");
    assert!(tee.signals.iter().any(|signal| signal.says == SignalMeaning::Able));
}

#[test]
fn a_plain_vm_has_no_sign() {
    let tree = FakeTree::new("plain", &[("/proc/cpuinfo", &flags(""))]);
    let tee = TeeSummary::read(&tree.root, Some(&INTEL), &log(""));
    assert_eq!((tee.reading, tee.kind), (SignalVerdict::NoSign, None), "{tee:?}");
    assert!(tee.text().starts_with("no sign of a confidential VM"), "{}", tee.text());
}

#[test]
fn a_device_alone_is_a_contradiction_and_named_as_one() {
    // As on a plain VM where somebody made a file of that name.
    let files = [("/dev/tdx_guest", ""), ("/proc/cpuinfo", &flags("") as &str)];
    let tree = FakeTree::new("alone", &files);
    let tee = TeeSummary::read(&tree.root, Some(&INTEL), &log(""));
    assert_eq!(tee.reading, SignalVerdict::Contradiction);
    assert_eq!(tee.agree, ["/dev/tdx_guest"]);
    assert_eq!(tee.disagree, ["cpuid 0x21", "cpu flag tdx_guest", "kernel log"]);
    assert!(tee.text().ends_with("no conclusion"), "{}", tee.text());
}

#[test]
fn two_makers_at_once_are_a_contradiction() {
    let tree = FakeTree::new(
        "both",
        &[("/dev/tdx_guest", ""), ("/dev/sev-guest", ""), ("/proc/cpuinfo", &flags("tdx_guest"))],
    );
    let log = log("6,9,9,-;Memory Encryption Features active: Intel TDX\n");
    let tee = TeeSummary::read(&tree.root, Some(&TDX), &log);
    assert_eq!(tee.reading, SignalVerdict::Contradiction);
    assert_eq!(tee.disagree, ["/dev/sev-guest"]);
}

#[test]
fn a_log_without_its_beginning_speaks_neither_for_nor_against() {
    let files = [("/dev/tdx_guest", ""), ("/proc/cpuinfo", &flags("tdx_guest") as &str)];
    let tree = FakeTree::new("rolled", &files);
    let rolled = KernelLog::parse("6,900,9,-;Hypervisor detected: KVM\n");
    let tee = TeeSummary::read(&tree.root, Some(&TDX), &rolled);
    assert_eq!(tee.reading, SignalVerdict::Signs, "{tee:?}");
    assert!(tee.unread.contains(&"kernel log".to_owned()));
}
