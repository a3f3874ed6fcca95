//! The places that are looked at for signs of a confidential VM.

use super::{
    super::{
        cpuid::{CpuidLeaves, register_name_to_text},
        kernel_log::KernelLog,
        root::{FileTree, field_value},
    },
    signal::{PARAVISOR, Signal, SignalMeaning, TeeKind},
};

/// The most characters of a raw value.
const VALUE_CHARACTERS_MAX: usize = 160;
/// AMD64 SEV_STATUS (AMD64 APM volume 2, section 15.34.10): bit 0 SEV, 1 SEV-ES, 2 SEV-SNP.
const SEV_STATUS: u64 = 0xc001_0131;
/// The asset tag of every Azure VM; it names the cloud and no machine.
const AZURE_ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";
/// Kinds whose memory the kernel announces as encrypted.
const ANNOUNCED: &[TeeKind] = &[TeeKind::Tdx, TeeKind::SevSnp, TeeKind::SevEs, TeeKind::Sev];
const SEV_KINDS: &[TeeKind] = &[TeeKind::SevSnp, TeeKind::SevEs, TeeKind::Sev];

/// Collects every signal, in a fixed order.
pub(super) fn collect_signals(
    root: &FileTree,
    cpuid: Option<&CpuidLeaves>,
    log: &KernelLog,
) -> Vec<Signal> {
    let mut signals = device_signals(root);
    signals.extend(cpuid_signals(cpuid));
    signals.push(sev_status_signal(root, cpuid));
    signals.extend(cpu_flag_signals(root, cpuid));
    signals.extend(kernel_log_signals(log));
    signals.extend(configfs_signals(root));
    signals.push(event_log_signal(root));
    signals.extend(context_signals(root));
    signals.extend(host_signals(root));
    signals
}

fn new_signal(
    source: &str,
    value: impl AsRef<str>,
    says: SignalMeaning,
    kinds: &[TeeKind],
) -> Signal {
    let value = value.as_ref().chars().take(VALUE_CHARACTERS_MAX).collect();
    Signal { source: source.to_owned(), value, says, kinds: kinds.to_vec() }
}

/// Returns the sign of a guest of this kind: `Guest` where it is there, `Absent` where not.
fn presence_signal(source: &str, is_there: bool, value: impl AsRef<str>, kind: TeeKind) -> Signal {
    new_signal(
        source,
        value,
        if is_there { SignalMeaning::Guest } else { SignalMeaning::Absent },
        &[kind],
    )
}

/// Looks for the devices of guests: `Guest` where one is there, `Absent` where not.
fn device_signals(root: &FileTree) -> Vec<Signal> {
    let of_guest = [
        (["/dev/tdx_guest", "/dev/tdx-guest"], TeeKind::Tdx),
        (["/dev/sev-guest", "/dev/sev-guest"], TeeKind::SevSnp),
    ];
    let mut signals: Vec<Signal> = of_guest
        .iter()
        .map(|(paths, kind)| {
            let found = paths.iter().find(|path| root.exists(path));
            let value = found.map_or("not there".into(), |path| format!("{path} is there"));
            presence_signal(paths[0], found.is_some(), value, *kind)
        })
        .collect();
    // In a Nitro enclave, and only there, this device exists.
    if root.exists("/dev/nsm") {
        signals.push(new_signal("/dev/nsm", "is there", SignalMeaning::Guest, &[TeeKind::Nitro]));
    }
    // These let a process make an enclave; they say nothing of this system.
    for path in ["/dev/sgx_enclave", "/dev/sgx_provision", "/dev/sgx_vepc"] {
        if root.exists(path) {
            signals.push(new_signal(path, "is there", SignalMeaning::Able, &[TeeKind::Sgx]));
        }
    }
    signals
}

fn cpuid_signals(cpuid: Option<&CpuidLeaves>) -> Vec<Signal> {
    let Some(leaves) = cpuid else {
        return vec![new_signal("cpuid", "no x86-64 processor", SignalMeaning::Unread, &[])];
    };
    let vendor = match leaves.hypervisor {
        Some(name) => format!("hypervisor {:?}", register_name_to_text(name)),
        None => "no hypervisor bit".into(),
    };
    let mut signals = vec![new_signal("cpuid 0x40000000", vendor, SignalMeaning::Context, &[])];
    // Intel TDX Module, section "CPUID virtualization": leaf 0x21.
    let name = leaves
        .tdx
        .map_or("no such leaf".into(), |name| format!("{:?}", register_name_to_text(name)));
    let is_tdx = leaves.tdx.is_some_and(|name| &name == b"IntelTDX    ");
    signals.push(presence_signal("cpuid 0x21", is_tdx, name, TeeKind::Tdx));
    signals.push(amd_encryption_signal(leaves));
    if let Some([a, b]) = leaves.hyperv_isolation {
        signals.push(isolation_signal("cpuid 0x4000000c", a, b));
    }
    signals
}

/// Reads leaf 0x8000001f, which tells what is supported, while SEV_STATUS tells what is on. A SEV
/// guest is shown at least the bit of SEV, else its kernel would not look further.
fn amd_encryption_signal(leaves: &CpuidLeaves) -> Signal {
    const SOURCE: &str = "cpuid 0x8000001f";
    let Some(eax) = leaves.amd_encryption else {
        return new_signal(SOURCE, "no such leaf", SignalMeaning::Absent, SEV_KINDS);
    };
    let bits = [(0, "SME"), (1, "SEV"), (3, "SEV-ES"), (4, "SEV-SNP")];
    let names = bits.iter().filter(|(bit, _)| eax & (1 << bit) != 0).map(|(_, name)| *name);
    let value = format!("eax {eax:#010x}: {}", names.collect::<Vec<_>>().join(" "));
    let kinds: Vec<TeeKind> = [(4, TeeKind::SevSnp), (3, TeeKind::SevEs), (1, TeeKind::Sev)]
        .iter()
        .filter(|(bit, _)| eax & (1 << bit) != 0)
        .map(|(_, kind)| *kind)
        .collect();
    if kinds.is_empty() {
        return new_signal(
            SOURCE,
            value.trim_end_matches([':', ' ']),
            SignalMeaning::Absent,
            SEV_KINDS,
        );
    }
    new_signal(SOURCE, value, SignalMeaning::Able, &kinds)
}

/// Reads which part of SEV is on, from the model-specific register, where the module `msr` lets it
/// be read.
fn sev_status_signal(root: &FileTree, cpuid: Option<&CpuidLeaves>) -> Signal {
    use std::os::unix::fs::FileExt;
    const SOURCE: &str = "msr SEV_STATUS";
    if cpuid.is_none_or(|leaves| &leaves.vendor != b"AuthenticAMD") {
        return new_signal(SOURCE, "no AMD processor", SignalMeaning::Absent, SEV_KINDS);
    }
    let mut bytes = [0; 8];
    let read = std::fs::File::open(root.path("/dev/cpu/0/msr"))
        .and_then(|file| file.read_exact_at(&mut bytes, SEV_STATUS));
    if read.is_err() {
        return new_signal(SOURCE, "not readable", SignalMeaning::Unread, &[]);
    }
    let status = u64::from_le_bytes(bytes);
    let kind = match status & 0b111 {
        0 => return new_signal(SOURCE, format!("{status:#x}"), SignalMeaning::Absent, SEV_KINDS),
        bits if bits & 0b100 != 0 => TeeKind::SevSnp,
        bits if bits & 0b010 != 0 => TeeKind::SevEs,
        _ => TeeKind::Sev,
    };
    new_signal(SOURCE, format!("{status:#x}"), SignalMeaning::Guest, &[kind])
}

/// Reads the flags that the kernel shows. Those of AMD mean support, and Linux hides them in most
/// guests.
fn cpu_flag_signals(root: &FileTree, cpuid: Option<&CpuidLeaves>) -> Vec<Signal> {
    const TDX: &str = "cpu flag tdx_guest";
    let Some(cpuinfo) = root.read_text("/proc/cpuinfo") else {
        return vec![new_signal(TDX, "/proc/cpuinfo is not readable", SignalMeaning::Unread, &[])];
    };
    let flags = field_value(&cpuinfo, "flags").unwrap_or_default();
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    let value = if has("tdx_guest") { "set" } else { "not set" };
    let mut signals = vec![presence_signal(TDX, has("tdx_guest"), value, TeeKind::Tdx)];
    for (flag, kinds) in [
        ("sme", &[][..]),
        ("sev", &[TeeKind::Sev][..]),
        ("sev_es", &[TeeKind::SevEs]),
        ("sev_snp", &[TeeKind::SevSnp]),
        ("sgx", &[TeeKind::Sgx]),
    ] {
        if has(flag) {
            signals.push(new_signal(
                &format!("cpu flag {flag}"),
                "set",
                SignalMeaning::Able,
                kinds,
            ));
        }
    }
    let seen = cpuid.is_some_and(|leaves| leaves.hypervisor_present);
    if has("hypervisor") != seen && cpuid.is_some() {
        let value = if seen { "not set, though cpuid sets it" } else { "set, cpuid does not" };
        signals.push(new_signal("cpu flag hypervisor", value, SignalMeaning::Context, &[]));
    }
    signals
}

/// Collects what the kernel announced when it booted, in old words and new.
fn kernel_log_signals(log: &KernelLog) -> Vec<Signal> {
    const SOURCE: &str = "kernel log";
    if !log.readable {
        return vec![new_signal(SOURCE, "not readable", SignalMeaning::Unread, &[])];
    }
    let mut signals = Vec::new();
    let announced = log.find_line("Memory Encryption Features active");
    match announced.or_else(|| log.find_line("tdx: Guest detected")) {
        Some(line) => signals.push(parse_announcement(SOURCE, line)),
        None if log.whole => {
            signals.push(new_signal(
                SOURCE,
                "announces no encryption",
                SignalMeaning::Absent,
                ANNOUNCED,
            ));
        }
        None => {
            signals.push(new_signal(
                SOURCE,
                "its beginning is overwritten",
                SignalMeaning::Unread,
                &[],
            ));
        }
    }
    if let Some((a, b)) = log.find_line("Isolation Config:").and_then(parse_isolation_config) {
        signals.push(isolation_signal("kernel log, Hyper-V", a, b));
    }
    signals
}

/// Reads an announcement: `Memory Encryption Features active: Intel TDX`, `… AMD SEV SEV-ES
/// SEV-SNP`, and before Linux 5.19 `AMD Memory Encryption Features active: SEV SEV-ES`. `SME` alone
/// is a host's.
fn parse_announcement(source: &str, line: &str) -> Signal {
    let by_word = [
        ("TDX", TeeKind::Tdx),
        ("SEV-SNP", TeeKind::SevSnp),
        ("SEV-ES", TeeKind::SevEs),
        ("SEV", TeeKind::Sev),
    ];
    let has = |wanted: &str| line.split([' ', ':']).any(|word| word == wanted);
    let by_word = by_word.into_iter().find(|(word, _)| has(word)).map(|(_, kind)| kind);
    let kind = if line.contains("tdx: Guest") { Some(TeeKind::Tdx) } else { by_word };
    match kind {
        Some(kind) => new_signal(source, line, SignalMeaning::Guest, &[kind]),
        None => new_signal(source, line, SignalMeaning::Able, &[]),
    }
}

/// Parses `Hyper-V: Isolation Config: Group A 0x1, Group B 0xba2`.
fn parse_isolation_config(line: &str) -> Option<(u32, u32)> {
    let hex = |after: &str| {
        let rest = line.split_once(after)?.1.trim_start().strip_prefix("0x")?;
        let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u32::from_str_radix(digits, 16).ok()
    };
    Some((hex("Group A")?, hex("Group B")?))
}

/// Reads Hyper-V's isolation: group A bit 0 is the paravisor, group B bits 0 to 3 the kind.
fn isolation_signal(source: &str, a: u32, b: u32) -> Signal {
    let behind = if a & 1 != 0 { format!(", {PARAVISOR}") } else { String::new() };
    let value = format!("group A {a:#x}, group B {b:#x}{behind}");
    match b & 0xf {
        1 => new_signal(source, value, SignalMeaning::Guest, &[TeeKind::Vbs]),
        2 => new_signal(source, value, SignalMeaning::Guest, &[TeeKind::SevSnp]),
        3 => new_signal(source, value, SignalMeaning::Guest, &[TeeKind::Tdx]),
        _ => new_signal(source, value, SignalMeaning::Context, &[]),
    }
}

/// Looks at the report interface of the kernel. The provider is read where an entry exists; none is
/// made, since that would be a call on the device.
fn configfs_signals(root: &FileTree) -> Vec<Signal> {
    const SOURCE: &str = "configfs-tsm";
    const FOLDER: &str = "/sys/kernel/config/tsm/report";
    if !root.exists(FOLDER) {
        let value = "no such folder: Linux before 6.7, not mounted, or no provider";
        return vec![new_signal(SOURCE, value, SignalMeaning::Unread, &[])];
    }
    let providers: Vec<String> = root
        .list_names(FOLDER)
        .iter()
        .filter_map(|name| root.read_value(&format!("{FOLDER}/{name}/provider")))
        .collect();
    let Some(provider) = providers.first() else {
        return vec![new_signal(
            SOURCE,
            "the folder is there, without an entry",
            SignalMeaning::Able,
            &[],
        )];
    };
    let kind = match provider.replace('-', "_").as_str() {
        "tdx_guest" => Some(TeeKind::Tdx),
        "sev_guest" => Some(TeeKind::SevSnp),
        _ => None,
    };
    let value = format!("provider {provider}");
    vec![match kind {
        Some(kind) => new_signal(SOURCE, value, SignalMeaning::Guest, &[kind]),
        None => new_signal(SOURCE, value, SignalMeaning::Context, &[]),
    }]
}

/// Looks for the table of the firmware's event log in a confidential guest (UEFI 2.10, section 38):
/// byte 36 is 1 for SEV, 2 for TDX.
fn event_log_signal(root: &FileTree) -> Signal {
    const SOURCE: &str = "acpi table CCEL";
    const PATH: &str = "/sys/firmware/acpi/tables/CCEL";
    match root.read_bytes(PATH).and_then(|table| table.get(36).copied()) {
        Some(1) => new_signal(SOURCE, "type 1, SEV", SignalMeaning::Guest, SEV_KINDS),
        Some(2) => new_signal(SOURCE, "type 2, TDX", SignalMeaning::Guest, &[TeeKind::Tdx]),
        Some(other) => new_signal(SOURCE, format!("type {other}"), SignalMeaning::Context, &[]),
        None if root.exists(PATH) => new_signal(SOURCE, "not readable", SignalMeaning::Unread, &[]),
        None => new_signal(SOURCE, "none", SignalMeaning::Context, &[]),
    }
}

/// Collects where this runs: a virtual TPM, the maker of the machine and its firmware.
fn context_signals(root: &FileTree) -> Vec<Signal> {
    let mut signals = Vec::new();
    let tpm = ["/dev/tpm0", "/dev/tpmrm0"].iter().find(|path| root.exists(path));
    let version = root.read_value("/sys/class/tpm/tpm0/tpm_version_major");
    let value = match (tpm, &version) {
        (Some(path), Some(version)) => format!("{path}, version {version}"),
        (Some(path), None) => (*path).to_owned(),
        (None, Some(version)) => format!("version {version}, no device file"),
        (None, None) => "none".into(),
    };
    signals.push(new_signal("tpm", value, SignalMeaning::Context, &[]));
    let dmi = |name: &str| root.read_value(&format!("/sys/class/dmi/id/{name}"));
    let names: Vec<String> = ["sys_vendor", "product_name", "bios_vendor", "bios_version"]
        .iter()
        .filter_map(|name| dmi(name))
        .collect();
    let value = if names.is_empty() { "none".into() } else { names.join("; ") };
    signals.push(new_signal("dmi", value, SignalMeaning::Context, &[]));
    if dmi("chassis_asset_tag").as_deref() == Some(AZURE_ASSET_TAG) {
        signals.push(new_signal(
            "dmi asset tag",
            "that of every Azure VM",
            SignalMeaning::Context,
            &[],
        ));
    }
    let efi = if root.exists("/sys/firmware/efi") { "booted by UEFI" } else { "not by UEFI" };
    signals.push(new_signal("efi", efi, SignalMeaning::Context, &[]));
    signals
}

/// Looks for signs of a host that can start confidential guests.
fn host_signals(root: &FileTree) -> Vec<Signal> {
    let on = |path: &str| root.read_value(path).filter(|value| matches!(value.as_str(), "Y" | "1"));
    let mut signals = Vec::new();
    if root.exists("/dev/sev") {
        signals.push(new_signal("/dev/sev", "is there", SignalMeaning::Able, SEV_KINDS));
    }
    for (path, kind) in [
        ("/sys/module/kvm_intel/parameters/tdx", TeeKind::Tdx),
        ("/sys/module/kvm_amd/parameters/sev", TeeKind::Sev),
        ("/sys/module/kvm_amd/parameters/sev_es", TeeKind::SevEs),
        ("/sys/module/kvm_amd/parameters/sev_snp", TeeKind::SevSnp),
    ] {
        if let Some(value) = on(path) {
            let source = path.trim_start_matches("/sys/module/").replace("/parameters/", " ");
            signals.push(new_signal(&source, value, SignalMeaning::Able, &[kind]));
        }
    }
    signals
}

/// Runs the parsers of this file over any text, for the fuzzer; returns the signals of a kernel
/// log.
pub(crate) fn fuzz_parsers(text: &str) -> Vec<Signal> {
    let _ = parse_isolation_config(text);
    kernel_log_signals(&KernelLog::parse(text))
}
