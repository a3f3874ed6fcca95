//! How evidence is bound to connections, as arguments name it.

use clap::ValueEnum;
use confide_channel::Binding;

/// The binding of a server, or of a client that may do without evidence.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum BindingName {
    /// Ordinary TLS without evidence, for comparison
    None,
    /// Evidence in the certificate, bound to the TLS key
    Key,
    /// Evidence after the handshake, bound to this TLS session
    Session,
}

impl From<BindingName> for Binding {
    fn from(name: BindingName) -> Self {
        match name {
            BindingName::None => Binding::None,
            BindingName::Key => Binding::Key,
            BindingName::Session => Binding::Session,
        }
    }
}

/// The binding where evidence is always shown.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum EvidenceBinding {
    /// Evidence in the certificate, bound to the TLS key
    Key,
    /// Evidence after the handshake, bound to this TLS session
    Session,
}

impl From<EvidenceBinding> for Binding {
    fn from(name: EvidenceBinding) -> Self {
        match name {
            EvidenceBinding::Key => Binding::Key,
            EvidenceBinding::Session => Binding::Session,
        }
    }
}
