//! The result of the appraisal of a GPU.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};

use confide_evidence::{escape_untrusted, gpu::GpuReport};
use serde_json::{Map, Value, json};

use super::chain::VerifiedChain;
use crate::{
    checks::{Check, checks_to_json},
    roots::Root,
    scope::Scope,
};

/// An accepted GPU. It is not a [`crate::Appraised`]: it says nothing about a program or a channel.
#[derive(Clone, Debug)]
pub struct GpuAppraised {
    pub(super) root: Root,
    pub(super) claims: GpuClaims,
    pub(super) checks: Vec<Check>,
}

/// The claims that a GPU's report, certificates and manifests make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuClaims {
    /// The device's name, from its certificate: `GH100 A01 GSP BROM`.
    pub device: String,
    /// Serial number of the device's certificate: which device this is.
    pub device_serial: Vec<u8>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Version of the VBIOS.
    pub vbios: Option<String>,
    /// NVIDIA's abbreviation of the passthrough mode; `None` if the report has none.
    pub mode: Option<&'static str>,
    /// Whether all measurements were compared with reference manifests.
    pub measurements_compared: bool,
    /// Unix seconds at which the first certificate expires.
    pub valid_until: u64,
}

impl GpuAppraised {
    /// The root under which the GPU's certificates were accepted.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The claims, all of them read from signed bytes.
    pub fn claims(&self) -> &GpuClaims {
        &self.claims
    }

    /// Every check with its outcome, in the order in which they ran.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The verdict as `confide verify --json` prints it.
    pub fn to_json(&self) -> Value {
        json!({
            "outcome": "accepted",
            "scope": Scope::Platform.as_str(),
            "root": self.root.to_json(),
            "tcb_status": null,
            "advisories": [],
            "claims": self.claims.to_json(),
            "checks": checks_to_json(&self.checks),
            "reason": null,
        })
    }

    /// The part `gpu` of the verdict on a CPU.
    pub(crate) fn part_json(&self) -> Value {
        json!({
            "root": self.root.to_json(),
            "claims": self.claims.to_json(),
            "checks": checks_to_json(&self.checks),
        })
    }
}

impl GpuClaims {
    pub(super) fn from_report(
        report: &GpuReport<'_>,
        chain: &VerifiedChain<'_>,
        measurements_compared: bool,
        valid_until: u64,
    ) -> Self {
        let device = &chain.certificates[1];
        Self {
            device: escape_untrusted(device.common_name),
            device_serial: device.serial.to_vec(),
            driver: report.opaque.driver_version.map(ToString::to_string),
            vbios: report.opaque.vbios_version.clone(),
            mode: report.opaque.feature_flag.map(|flag| flag.as_str()),
            measurements_compared,
            valid_until,
        }
    }

    fn to_json(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
        put("tee", "nvidia-gpu".into());
        put("device", self.device.as_str().into());
        put("device_serial", hex::encode(&self.device_serial).into());
        put("driver", self.driver.as_deref().into());
        put("vbios", self.vbios.as_deref().into());
        put("mode", self.mode.into());
        put("measurements_compared", self.measurements_compared.into());
        put("valid_until", self.valid_until.into());
        Value::Object(fields)
    }
}
