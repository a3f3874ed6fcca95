//! What the processor, or the hypervisor in its place, says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The leaves that tell of virtualisation and of confidential guests, raw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Leaves")]
pub(crate) struct CpuidLeaves {
    /// True where leaf 1 sets the hypervisor bit (ECX bit 31).
    pub(crate) hypervisor_present: bool,
    /// Leaf 0: EBX, EDX, ECX.
    pub(crate) vendor: [u8; 12],
    /// Leaf 0x40000000: EBX, ECX, EDX.
    pub(crate) hypervisor: Option<[u8; 12]>,
    /// Leaf 0x21, subleaf 0: EBX, EDX, ECX; `IntelTDX    ` in a TDX guest.
    pub(crate) tdx: Option<[u8; 12]>,
    /// Leaf 0x8000001f: EAX.
    pub(crate) amd_encryption: Option<u32>,
    /// Leaf 0x4000000c: EAX and EBX, of a Hyper-V that tells of isolation.
    pub(crate) hyperv_isolation: Option<[u32; 2]>,
}

impl CpuidLeaves {
    /// Reads the leaves of this processor; `None` if it is not an x86-64.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn read() -> Option<Self> {
        None
    }

    /// Reads the leaves of this processor; `None` if it is not an x86-64.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn read() -> Option<Self> {
        use std::arch::x86_64::__cpuid_count as cpuid;
        let (first, one) = (cpuid(0, 0), cpuid(1, 0));
        let hypervisor_present = one.ecx & (1 << 31) != 0;
        let extended = cpuid(0x8000_0000, 0).eax;
        // Without the hypervisor bit the leaves at 0x40000000 are not defined.
        let hypervisor = hypervisor_present.then(|| cpuid(0x4000_0000, 0));
        let hypervisor_name =
            hypervisor.map(|leaf| registers_to_bytes([leaf.ebx, leaf.ecx, leaf.edx]));
        let microsoft = hypervisor
            .filter(|leaf| registers_to_bytes([leaf.ebx, leaf.ecx, leaf.edx]) == *b"Microsoft Hv")
            .filter(|leaf| leaf.eax >= 0x4000_000c)
            // Hypervisor Top Level Functional Specification: EBX bit 22, isolation.
            .filter(|_| cpuid(0x4000_0003, 0).ebx & (1 << 22) != 0)
            .map(|_| cpuid(0x4000_000c, 0));
        let tdx = (first.eax >= 0x21).then(|| cpuid(0x21, 0));
        Some(Self {
            hypervisor_present,
            vendor: registers_to_bytes([first.ebx, first.edx, first.ecx]),
            hypervisor: hypervisor_name,
            tdx: tdx.map(|leaf| registers_to_bytes([leaf.ebx, leaf.edx, leaf.ecx])),
            amd_encryption: (extended >= 0x8000_001f).then(|| cpuid(0x8000_001f, 0).eax),
            hyperv_isolation: microsoft.map(|leaf| [leaf.eax, leaf.ebx]),
        })
    }
}

/// Returns the printable part of a name in registers.
pub(crate) fn register_name_to_text(name: [u8; 12]) -> String {
    let printable = name.iter().filter(|byte| (0x20..0x7f).contains(*byte));
    printable.map(|byte| char::from(*byte)).collect::<String>().trim().to_owned()
}

fn registers_to_bytes(registers: [u32; 3]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (to, from) in bytes.chunks_exact_mut(4).zip(registers) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_registers_is_read_in_order_and_shown_without_zeros() {
        let name = registers_to_bytes([0x4b4d_564b, 0x564b_4d56, 0x0000_004d]);
        assert_eq!(&name, b"KVMKVMKVM\0\0\0");
        assert_eq!(register_name_to_text(name), "KVMKVMKVM");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_processor_has_a_vendor() {
        assert!(!register_name_to_text(CpuidLeaves::read().unwrap().vendor).is_empty());
    }
}
