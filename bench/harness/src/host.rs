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
