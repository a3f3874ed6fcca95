//! Measures the files of a model on this machine, and checks that a model server has them open.
//!
//! [`WeightsMeasurement::measure`] hashes a file or a folder. Its digest is one that anybody can
//! compute with `sha256sum`. [`WeightsMeasurement::check_unchanged`] notices later changes of the
//! files, and [`ServerProcess::find`] finds the program that listens at an address and has them
//! open. `docs/weights.md` says what that shows and what it does not.

mod error;
mod file_stamp;
mod folder;
mod measurement;
mod readers;
mod server_process;

pub use error::{ServerProcessError, WeightsError};
pub use measurement::WeightsMeasurement;
pub use server_process::ServerProcess;
