//! Adapters at adapter hosts, reached by this program.

use std::sync::Arc;

use confide_evidence::Attest;
use confide_lora::{
    holder::{HolderOptions, RemoteAdapter},
    host::PARAMETERS_DEFAULT,
    protocol::Scheme,
};
use confide_rlwe::ParameterSet;
use confide_serve::{BaseCheck, OpenedAdapter};

use super::arguments::{AdapterArgs, ModeName, SchemeName};
use crate::{
    adapter::dial::{self, DialArgs},
    error::CliError,
    files::read_credential,
};

/// Opens a session with the host at `address` about its adapter `name`.
pub(super) fn open(
    args: &AdapterArgs,
    attester: Option<Arc<dyn Attest>>,
    address: &str,
    name: &str,
) -> Result<OpenedAdapter, String> {
    let scheme = match args.adapter_scheme.unwrap_or(SchemeName::Masked) {
        SchemeName::Masked => Scheme::Masked,
        SchemeName::Direct => Scheme::Direct,
        SchemeName::CkksSlots | SchemeName::LocalParity => {
            return Err("it is at a host: wanted a folder for this scheme, which protects nobody \
                        and runs in one process"
                .into());
        }
    };
    if args.adapter_mode == ModeName::FinalHidden {
        return Err("it is at a host: wanted a folder for --adapter-mode final-hidden".into());
    }
    let message = |error: CliError| error.message().to_owned();
    let credential = match &args.adapter_credential {
        None => Vec::new(),
        Some(path) => read_credential(path).map_err(message)?.to_vec(),
    };
    let connect = dial::connect(&DialArgs {
        host: address.into(),
        policy: args.adapter_policy.clone(),
        binding: args.adapter_binding,
        attester,
        certificate: args.adapter_certificate.clone(),
        dangerous_plain: args.dangerous_adapter_plain,
    });
    let connect = connect.map_err(message)?;
    let set = args.adapter_parameters.as_deref().unwrap_or(PARAMETERS_DEFAULT);
    let parameters = ParameterSet::from_name(set).map_err(|error| error.to_string())?;
    let protect = args.adapter_protect.map(Into::into);
    let defaults = HolderOptions::new(name, parameters);
    let options = HolderOptions { scheme, protect, credential, ..defaults };
    let adapter = RemoteAdapter::connect(connect, options).map_err(|error| error.to_string())?;
    let root = format!("{address}/{name}");
    // The protocol has no place for the name of the base model; widths are checked.
    let base = BaseCheck::NotEvaluated;
    Ok(OpenedAdapter { adapter: Arc::new(adapter), root, reference: None, base })
}
