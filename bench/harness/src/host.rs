//! The machine: what it is, how quiet it was while a slice ran, and what the slice cost.
//!
//! Everything here is read from files of the kernel below a [`FileTree`], from cpuid, and from a few
//! programs; nothing of it names the machine, its owner or its network.

mod cgroup;
mod clock;
pub(crate) mod cost;
mod cpu;
mod cpuid;
mod disk;
pub(crate) mod facts;
mod gpu;
mod kernel_log;
pub(crate) mod machine;
pub(crate) mod programs;
pub(crate) mod quiet;
pub(crate) mod root;
mod swiotlb;
mod tee;

/// Runs every parser of texts of kernel and programs over the same text, for the fuzzer; none may
/// panic.
#[doc(hidden)]
pub fn fuzz_host_parsers(text: &str) {
    let _ = kernel_log::KernelLog::parse(text);
    let _ = gpu::Gpus::parse(text);
    gpu::fuzz_parsers(text);
    cgroup::fuzz_parsers(text);
    clock::fuzz_parsers(text);
    cost::fuzz_parsers(text);
    disk::fuzz_parsers(text);
    machine::fuzz_parsers(text);
    quiet::fuzz_parsers(text);
    swiotlb::fuzz_parsers(text);
    let _ = tee::summary::TeeSummary::from_signals(tee::signals::fuzz_parsers(text)).text();
}
