//! Adapters at adapter hosts, reached by this program.

use std::sync::Arc;

use confide_evidence::Attest;
use confide_lora::{
    holder::{KeyHolderOptions, RemoteAdapter},
    host::PARAMETERS_DEFAULT,
    protocol::Scheme,
};
use confide_rlwe::ParameterSet;
use confide_serve::{BaseModelMatch, OpenedAdapter};

use super::arguments::{AdapterArgs, AdapterModeName, AdapterSchemeName};
use crate::{
    adapter::dial::{self, DialArgs},
    error::CliError,
    files::read_credential,
};

/// Opens a session with the host at `address` about its adapter `name`.
pub(super) fn open_session(
    args: &AdapterArgs,
    attester: Option<Arc<dyn Attest>>,
    address: &str,
    name: &str,
) -> Result<OpenedAdapter, String> {
    let scheme = match args.adapter_scheme.unwrap_or(AdapterSchemeName::Masked) {
        AdapterSchemeName::Masked => Scheme::Masked,
        AdapterSchemeName::Direct => Scheme::Direct,
        AdapterSchemeName::CkksSlots | AdapterSchemeName::LocalParity => {
            return Err(
                "this scheme runs in one process, which protects nobody: it needs a folder, \
                        but the adapter is at a host"
                    .into(),
            );
        }
    };
    if args.adapter_mode == AdapterModeName::FinalHidden {
        return Err(
            "--adapter-mode final-hidden needs a folder, but the adapter is at a host".into()
        );
    }
    let message = |error: CliError| error.message().to_owned();
    let credential = match &args.adapter_credential {
        None => Vec::new(),
        Some(path) => read_credential(path).map_err(message)?.to_vec(),
    };
    let connect = dial::build_connector(&DialArgs {
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
    let defaults = KeyHolderOptions::new(name, parameters);
    let options = KeyHolderOptions { scheme, protect, credential, ..defaults };
    let adapter = RemoteAdapter::connect(connect, options).map_err(|error| error.to_string())?;
    let root = format!("{address}/{name}");
    // The protocol has no place for the name of the base model; widths are checked.
    let base = BaseModelMatch::NotEvaluated;
    Ok(OpenedAdapter { adapter: Arc::new(adapter), root, reference: None, base })
}
