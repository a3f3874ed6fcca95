//! The arms, and the one that drives any tool of `tools.toml`.

pub(crate) mod ab;
pub(crate) mod chase;
pub(crate) mod cyclictest;
pub(crate) mod disk;
pub(crate) mod fio;
pub(crate) mod iperf3;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod tool;
pub(crate) mod triad;
