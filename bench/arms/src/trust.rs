//! What a client trusts: a pinned certificate, or a policy by which evidence is appraised.

use std::path::{Path, PathBuf};

use confide_arm_line::{Outcome, read_file};
use confide_client::{PolicyAppraiser, error_chain};
use confide_evidence::pem::decode_chain;
use confide_verifier::Policy;

use crate::clock::unix_now;

/// The other end of a channel, and what is trusted of it.
#[derive(Clone, clap::Args)]
pub(crate) struct ChannelArgs {
    /// The server, HOST:PORT.
    #[arg(long)]
    pub(crate) server: String,
    /// The certificate that `tls` trusts (PEM).
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
    /// The policy for attested modes.
    #[arg(long)]
    pub(crate) policy: Option<PathBuf>,
    /// A tunnel, ws://HOST:PORT.
    #[arg(long)]
    pub(crate) via: Option<String>,
}

impl ChannelArgs {
    /// The certificate (DER) that `tls` trusts.
    pub(crate) fn read_root(&self) -> Outcome<Vec<u8>> {
        read_root(self.root.as_ref().ok_or("--mode tls needs --root FILE")?)
    }

    /// An appraiser by the policy; `collateral` takes the place of what the server staples.
    pub(crate) fn open_appraiser(&self, collateral: Option<&[u8]>) -> Outcome<PolicyAppraiser> {
        let policy = self.policy.as_ref().ok_or("attested modes need --policy FILE")?;
        open_appraiser(policy, collateral)
    }

    /// The part of an arm's name that names the tunnel.
    pub(crate) fn describe_tunnel(&self) -> &'static str {
        if self.via.is_some() { ", through the tunnel" } else { "" }
    }
}

/// The first certificate (DER) of a PEM file.
pub(crate) fn read_root(path: &Path) -> Outcome<Vec<u8>> {
    let chain = decode_chain("--root", &read_file(path)?)?;
    Ok(chain.into_iter().next().ok_or("--root: no certificate in the file")?)
}

pub(crate) fn read_policy(path: &Path) -> Outcome<Policy> {
    Ok(Policy::from_toml(&String::from_utf8(read_file(path)?)?)?)
}

/// An appraiser by a policy; `collateral` takes the place of what servers staple.
pub(crate) fn open_appraiser(policy: &Path, collateral: Option<&[u8]>) -> Outcome<PolicyAppraiser> {
    Ok(PolicyAppraiser::new(read_policy(policy)?, collateral, unix_now)
        .map_err(|error| error_chain(&error))?)
}
