//! The policy that accepts exactly this simulated attester.

use sha2::{Digest, Sha256};

use crate::{
    edition::EVALUATION_NUMBER,
    measurements::{enclave_measurement, report_identifier, trust_domain_measurement},
    options::{FakeAttesterOptions, Tee},
    quote::{WORKLOAD_PROD_ID, WORKLOAD_SVN},
};

/// The text of the policy in the format of `docs/policy.md`. It is written by hand, so that anyone who
/// opens the file finds the comments.
pub(crate) fn write_policy(
    options: &FakeAttesterOptions,
    root: &[u8],
    gpu_roots: Option<[&[u8]; 2]>,
    configuration: ConfigurationLines,
) -> String {
    let root = hex::encode(Sha256::digest(root));
    let [of_gpus, required] = gpu_roots.map_or_else(Default::default, gpu_lines);
    let debug = if options.debug { DEBUG } else { NO_DEBUG };
    let workload = match options.tee {
        Tee::Tdx | Tee::TdxV5 => trust_domain_lines(),
        Tee::Sgx => enclave_lines(),
        Tee::Snp => guest_lines(),
    };
    format!(
        r#"# SIMULATED: accepts evidence that software made under a test root. It protects nothing.
# Never put this root into a policy together with a real one.

# SHA-256 of the simulated root certificate, root.der.
roots = ["sha256:{root}"{of_gpus}]

tcb_status = "UpToDate"
advisories = []
tcb_evaluation_data_number_min = {EVALUATION_NUMBER}
{debug}
{configuration}
{workload}{required}"#
    )
}

/// The lines of the policy about the attested end's configuration.
pub(crate) enum ConfigurationLines {
    /// No configuration is pinned: clients refuse until a digest is.
    Unpinned,
    /// The configuration with this digest is accepted, and no other.
    Pinned([u8; 32]),
    /// Any configuration is accepted, also by clients.
    DangerousAny,
}

impl std::fmt::Display for ConfigurationLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unpinned => f.write_str(UNPINNED),
            Self::Pinned(digest) => {
                writeln!(f, "{CONFIGURATION}\nconfig_digest = \"{}\"", hex::encode(digest))
            }
            Self::DangerousAny => f.write_str(DANGEROUS_ANY),
        }
    }
}

const CONFIGURATION: &str =
    "# SHA-256 of the attested end's configuration: upstream, routes, tunnel targets.";

const UNPINNED: &str = "\
# SHA-256 of the attested end's configuration: upstream, routes, tunnel targets. Clients refuse this
# policy until it is pinned: `confide policy pin policy.toml --digest HEX` does that, and
# `confide gateway … --print-config-digest` prints the value.
config_digest = \"dangerous-any\"
";

const DANGEROUS_ANY: &str = "\
# Any configuration passes, even that of a gateway with a foreign upstream, and clients use a server
# although only its platform is known. `confide policy pin` ends both.
config_digest = \"dangerous-any\"
dangerous_scope = \"platform\"
";

const NO_DEBUG: &str = "dangerous_accept_debug = false\n";
const DEBUG: &str = "# The simulated attester is in debug mode, where the host reads memory.\n\
                     dangerous_accept_debug = true\n";

/// The lines that are added to the roots, and those that are added at the end.
fn gpu_lines(roots: [&[u8]; 2]) -> [String; 2] {
    let name = |root: &[u8]| format!(", \"sha256:{}\"", hex::encode(Sha256::digest(root)));
    let required = "\n# The simulated GPU, whose two roots are the last ones above.\n\
                    [gpu]\nrequired = true\n";
    [roots.map(name).concat(), required.into()]
}

fn trust_domain_lines() -> String {
    let [mrtd, rtmr0, rtmr1, rtmr2, rtmr3, mrseam] =
        ["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3", "mrseam"]
            .map(|name| hex::encode(trust_domain_measurement(name)));
    format!(
        r#"# SHA-384 of "SIMULATED mrtd", "SIMULATED rtmr0" and so on: nothing was measured.
[workload.tdx]
mrtd = "{mrtd}"
rtmr0 = "{rtmr0}"
rtmr1 = "{rtmr1}"
rtmr2 = "{rtmr2}"
rtmr3 = "{rtmr3}"
mrseam = "{mrseam}"
"#
    )
}

fn enclave_lines() -> String {
    let [mrenclave, mrsigner] =
        ["mrenclave", "mrsigner"].map(|name| hex::encode(enclave_measurement(name)));
    format!(
        r#"# SHA-256 of "SIMULATED mrenclave" and "SIMULATED mrsigner": nothing was measured.
[workload.sgx]
mrenclave = "{mrenclave}"
mrsigner = "{mrsigner}"
isv_prod_id = {WORKLOAD_PROD_ID}
isv_svn_min = {WORKLOAD_SVN}
"#
    )
}

fn guest_lines() -> String {
    let measurement = hex::encode(trust_domain_measurement("snp measurement"));
    let [family_id, image_id] =
        ["family id", "image id"].map(|name| hex::encode(report_identifier(name)));
    format!(
        r#"# The versions of the simulated chips are invented: there is nothing to compare them with.
[snp]
tcb_min = "dangerous-any"

# SHA-384 of "SIMULATED snp measurement" and so on: nothing was measured.
[workload.snp]
measurement = "{measurement}"
family_id = "{family_id}"
image_id = "{image_id}"
smt = true
"#
    )
}
