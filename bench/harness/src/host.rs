//! The machine: what it is, how quiet it was while a slice ran, and what the slice cost.
//!
//! Everything here is read from files of the kernel below a [`Root`], from cpuid, and from a few
//! programs; nothing of it names the machine, its owner or its network.

mod cgroup;
mod clock;
mod cost;
mod cpu;
mod cpuid;
mod disk;
mod facts;
mod gpu;
mod kernel_log;
mod machine;
mod programs;
mod quiet;
mod root;
mod swiotlb;
mod tee;

pub use facts::{Fact, FactGroup};
pub use machine::Machine;

pub(crate) use cost::{Cost, Meter, Usage};
pub(crate) use programs::Program;
pub(crate) use quiet::{Quiet, Watch, budget, spin};
pub(crate) use root::Root;

/// Every reader of texts of kernel and programs over the same text, for the fuzzer: none may panic.
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
    tee::fuzz(text);
}
