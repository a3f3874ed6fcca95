//! The arguments of the blind protocol that hosts and key holders share.

use clap::ValueEnum;
use confide_lora::{ProtectedMatrices, host::PARAMETERS_DEFAULT};
use confide_rlwe::ParameterSet;

use crate::error::CliError;

/// The parameter set of the encryption.
#[derive(clap::Args)]
pub(crate) struct ParameterArgs {
    /// Parameter set of the encryption: at least 128 bits of security, with noise flooding
    #[arg(long, value_name = "NAME", default_value = PARAMETERS_DEFAULT)]
    parameters: String,
    /// Also allow a parameter set below 128 bits or without noise flooding
    #[arg(long)]
    dangerous_parameters: bool,
}

impl ParameterArgs {
    /// The parameter set that the arguments name.
    pub(crate) fn parameter_set(&self) -> Result<ParameterSet, CliError> {
        let by_name = if self.dangerous_parameters {
            ParameterSet::dangerous_from_name
        } else {
            ParameterSet::from_name
        };
        by_name(&self.parameters).map_err(|error| {
            CliError::new(error).with_hint("docs/blind-protocol.md lists the sets")
        })
    }
}

/// The matrices of an adapter that never leave its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtectedMatricesName {
    /// A stays; B is handed over
    A,
    /// Both A and B stay
    Ba,
}

impl From<ProtectedMatricesName> for ProtectedMatrices {
    fn from(name: ProtectedMatricesName) -> Self {
        match name {
            ProtectedMatricesName::A => ProtectedMatrices::A,
            ProtectedMatricesName::Ba => ProtectedMatrices::Ba,
        }
    }
}
