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
pub fn read_host_texts(text: &str) {
    let _ = kernel_log::KernelLog::parse(text);
    let _ = gpu::Gpus::parse(text);
    gpu::fuzz(text);
    cgroup::fuzz(text);
    clock::fuzz(text);
    cost::fuzz(text);
    disk::fuzz(text);
    machine::fuzz(text);
    quiet::fuzz(text);
    swiotlb::fuzz(text);
    let _ = tee::summary::Tee::from_signals(tee::signals::fuzz(text)).text();
}
