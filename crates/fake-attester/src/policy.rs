//! The policy that accepts exactly this simulated attester.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::{
    Options, Tee,
    measurements::{of_enclave, of_trust_domain},
    quote::{WORKLOAD_PROD_ID, WORKLOAD_SVN},
};

/// The policy's text; `docs/policy.md` describes the format.
pub(crate) fn toml(options: &Options, root: &[u8]) -> String {
    let mut text = format!(
        "# SIMULATED: accepts evidence that software made under a test root. Protects nothing.\n\
         roots = [\"{}\"]\n\
         tcb_status = [\"UpToDate\"]\n",
        hex::encode(Sha256::digest(root))
    );
    for (name, value) in measurements(options.tee) {
        let _ = writeln!(text, "{name} = \"{value}\"");
    }
    text
}

fn measurements(tee: Tee) -> Vec<(&'static str, String)> {
    match tee {
        Tee::Tdx => ["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"]
            .map(|name| (name, hex::encode(of_trust_domain(name))))
            .to_vec(),
        Tee::Sgx => {
            let mut values = ["mrenclave", "mrsigner"]
                .map(|name| (name, hex::encode(of_enclave(name))))
                .to_vec();
            values.push(("isv_prod_id", WORKLOAD_PROD_ID.to_string()));
            values.push(("isv_svn", WORKLOAD_SVN.to_string()));
            values
        }
    }
}
