//! Adapters at hosts.

use std::sync::Arc;

use confide_evidence::Attest;
use confide_lora::{
    Protect,
    holder::{HolderOptions, RemoteAdapter},
    host::PARAMETERS_DEFAULT,
    protocol::Scheme,
};
use confide_rlwe::ParameterSet;
use confide_serve::{BaseCheck, Opened};

use super::{AdapterArgs, ModeName, ProtectName, SchemeName};
use crate::{
    adapter::dial::{self, Dial},
    error::read_file,
};

/// A credential is at most 64 bytes; a line end after it is no part of it.
const CREDENTIAL_BYTES_MAX: u64 = 66;

/// What this end is known by; empty where it is a stranger.
pub(super) fn credential(args: &AdapterArgs) -> Result<Vec<u8>, String> {
    let Some(path) = &args.adapter_credential else { return Ok(Vec::new()) };
    let bytes = read_file(path, CREDENTIAL_BYTES_MAX);
    let bytes = bytes.map_err(|error| error.message().to_owned())?.trim_ascii_end().to_vec();
    match bytes.is_empty() {
        true => Err(format!("{}: wanted a credential, got an empty file", path.display())),
        false => Ok(bytes),
    }
}

/// Opens a session with the host at `address` about its adapter `name`.
pub(super) fn open(
    args: &AdapterArgs,
    attester: Option<Arc<dyn Attest>>,
    address: &str,
    name: &str,
) -> Result<Opened, String> {
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
    let credential = credential(args)?;
    let connect = dial::connect(&Dial {
        host: address.into(),
        policy: args.adapter_policy.clone(),
        binding: args.adapter_binding,
        attester,
        certificate: args.adapter_certificate.clone(),
        dangerous_plain: args.dangerous_adapter_plain,
    });
    let connect = connect.map_err(|error| error.message().to_owned())?;
    let set = args.adapter_parameters.as_deref().unwrap_or(PARAMETERS_DEFAULT);
    let parameters = ParameterSet::from_name(set).map_err(|error| error.to_string())?;
    let protect = args.adapter_protect.map(|protect| match protect {
        ProtectName::A => Protect::A,
        ProtectName::Ba => Protect::Ba,
    });
    let plain = HolderOptions::new(name, parameters);
    let options = HolderOptions { scheme, protect, credential, ..plain };
    let adapter = RemoteAdapter::connect(connect, options).map_err(|error| error.to_string())?;
    let root = format!("{address}/{name}");
    // The protocol has no place for the name of the base model; widths are checked.
    let base = BaseCheck::NotEvaluated;
    Ok(Opened { adapter: Arc::new(adapter), root, reference: None, base })
}
