//! GPUs and their confidential mode, as `nvidia-smi` tells them.
//!
//! Its text is not promised to be stable: what is not understood is absent, never guessed. What it
//! says is a hint; the evidence of a GPU is the attester's affair.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{programs::RunProgram, root::FileTree};

/// All GPUs, or the reason why none is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Gpus {
    /// The source of what is known of the GPUs, or the reason why nothing is.
    pub(crate) source: String,
    pub(crate) driver: Option<String>,
    pub(crate) cuda: Option<String>,
    pub(crate) devices: Vec<Gpu>,
    /// The values that `nvidia-smi conf-compute` prints, by its own names.
    pub(crate) confidential: BTreeMap<String, String>,
}

/// One GPU, without serial number, UUID and bus address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub(crate) struct Gpu {
    pub(crate) name: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) vbios: Option<String>,
    pub(crate) memory_total: Option<String>,
    /// The memory that confidential mode protects.
    pub(crate) memory_protected: Option<String>,
    pub(crate) ecc: Option<String>,
    pub(crate) mig: Option<String>,
    pub(crate) persistence: Option<String>,
    pub(crate) power_limit: Option<String>,
    pub(crate) clock_graphics_max: Option<String>,
    pub(crate) clock_memory_max: Option<String>,
    pub(crate) pcie_generation: Option<String>,
    pub(crate) pcie_width: Option<String>,
    pub(crate) virtualisation: Option<String>,
}

/// The most GPUs that are listed.
const GPUS_MAX: usize = 64;
/// The most characters of a value; a longer one is not a value that is known here.
const VALUE_CHARACTERS_MAX: usize = 80;
/// The options of `nvidia-smi conf-compute` that read: feature, environment, developer tools, ready
/// state.
const CONFIDENTIAL: &[&str] = &["-f", "-e", "-d", "-grs"];
/// The beginnings of the names whose values are kept from the output of `conf-compute`.
const CONFIDENTIAL_NAMES: &[&str] = &["CC ", "Confidential", "DevTools", "Multi-GPU", "Protected"];

impl Gpus {
    /// Asks `nvidia-smi` about the GPUs of this machine.
    pub(crate) fn read(root: &FileTree, ask: RunProgram<'_>) -> Self {
        let device = root.exists("/dev/nvidiactl") || root.exists("/proc/driver/nvidia/version");
        let Some(xml) = ask("nvidia-smi", &["-q", "-x"]) else {
            let source = if device {
                "unknown: there is a driver, but nvidia-smi is missing or fails"
            } else {
                "no device here: no nvidia driver"
            };
            return Self { source: source.into(), ..Self::default() };
        };
        let mut gpus = Self::parse(&xml);
        for option in CONFIDENTIAL {
            let text = ask("nvidia-smi", &["conf-compute", option]).unwrap_or_default();
            gpus.confidential.extend(parse_confidential_mode(&text));
        }
        gpus
    }

    /// Parses the XML of `nvidia-smi -q -x`.
    pub(crate) fn parse(xml: &str) -> Self {
        let gpu = |part: &&str| part.contains("</gpu>");
        let devices: Vec<Gpu> =
            xml.split("<gpu ").skip(1).filter(gpu).take(GPUS_MAX).map(Gpu::parse).collect();
        let source = match devices.len() {
            0 => "no device here: nvidia-smi lists none",
            _ => "nvidia-smi",
        };
        let before = xml.split("<gpu ").next().unwrap_or_default();
        Self {
            source: source.into(),
            driver: xml_value(before, "driver_version"),
            cuda: xml_value(before, "cuda_version"),
            devices,
            confidential: BTreeMap::new(),
        }
    }
}

impl Gpu {
    fn parse(xml: &str) -> Self {
        let xml = xml.split("</gpu>").next().unwrap_or_default();
        let within = |section: &str, name: &str| xml_value(xml_section(xml, section), name);
        Self {
            name: xml_value(xml, "product_name"),
            architecture: xml_value(xml, "product_architecture"),
            vbios: xml_value(xml, "vbios_version"),
            memory_total: within("fb_memory_usage", "total"),
            memory_protected: within("cc_protected_memory_usage", "total"),
            ecc: within("ecc_mode", "current_ecc"),
            mig: within("mig_mode", "current_mig"),
            persistence: xml_value(xml, "persistence_mode"),
            power_limit: xml_value(xml, "current_power_limit")
                .or_else(|| xml_value(xml, "power_limit")),
            clock_graphics_max: within("max_clocks", "graphics_clock"),
            clock_memory_max: within("max_clocks", "mem_clock"),
            pcie_generation: xml_value(xml, "current_link_gen"),
            pcie_width: xml_value(xml, "current_link_width"),
            virtualisation: xml_value(xml, "virtualization_mode"),
        }
    }
}

/// Returns the text between the first `<name>` and its `</name>`.
fn xml_section<'a>(xml: &'a str, name: &str) -> &'a str {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inside = xml.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
    inside.map_or("", |(inside, _)| inside)
}

/// Returns a short value; `None` for `N/A`.
fn xml_value(xml: &str, name: &str) -> Option<String> {
    let value = xml_section(xml, name).trim();
    let plain = !value.contains('<') && value.chars().count() <= VALUE_CHARACTERS_MAX;
    let known = !value.is_empty() && !value.contains("N/A") && plain;
    known.then(|| value.replace("&amp;", "&"))
}

/// Collects the `name: value` lines of known names.
fn parse_confidential_mode(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        let known = CONFIDENTIAL_NAMES.iter().any(|start| name.starts_with(start));
        let short = |text: &str| text.chars().count() <= VALUE_CHARACTERS_MAX;
        (known && !value.is_empty() && short(name) && short(value))
            .then(|| (name.to_owned(), value.to_owned()))
    };
    text.lines().take(GPUS_MAX).filter_map(line).collect()
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = parse_confidential_mode(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    /// Made by hand after the names of `nvidia-smi -q -x`; no machine printed it.
    const HAND_MADE: &str = r#"<?xml version="1.0" ?>
<nvidia_smi_log>
 <driver_version>570.00</driver_version>
 <cuda_version>12.8</cuda_version>
 <attached_gpus>1</attached_gpus>
 <gpu id="00000000:01:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <product_architecture>Hopper</product_architecture>
  <persistence_mode>Enabled</persistence_mode>
  <mig_mode><current_mig>Disabled</current_mig></mig_mode>
  <serial>1234567890</serial>
  <uuid>GPU-00000000</uuid>
  <vbios_version>96.00.00</vbios_version>
  <fb_memory_usage><total>81559 MiB</total><used>1 MiB</used></fb_memory_usage>
  <cc_protected_memory_usage><total>81000 MiB</total></cc_protected_memory_usage>
  <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
  <gpu_power_readings><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
  <max_clocks><graphics_clock>1980 MHz</graphics_clock></max_clocks>
  <virtualization_mode>Pass-Through</virtualization_mode>
 </gpu>
</nvidia_smi_log>"#;

    #[test]
    fn a_gpu_in_confidential_mode_is_read_without_serial_and_uuid() {
        let tree = FakeTree::new("gpu", &[]);
        let gpus = Gpus::read(&tree.root, &|program, args| {
            assert_eq!(program, "nvidia-smi");
            Some(match args {
                ["-q", "-x"] => HAND_MADE.to_owned(),
                ["conf-compute", "-f"] => "CC status: ON\n".into(),
                ["conf-compute", "-e"] => "CC Environment: PRODUCTION\nnonsense\n".into(),
                _ => return None,
            })
        });
        assert_eq!(gpus.source, "nvidia-smi");
        assert_eq!(gpus.driver.as_deref(), Some("570.00"));
        assert_eq!(gpus.confidential["CC status"], "ON");
        assert_eq!(gpus.confidential["CC Environment"], "PRODUCTION");
        assert_eq!(gpus.confidential.len(), 2);
        let gpu = &gpus.devices[0];
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
        assert_eq!(gpu.memory_total.as_deref(), Some("81559 MiB"));
        assert_eq!(gpu.memory_protected.as_deref(), Some("81000 MiB"));
        assert_eq!(gpu.mig.as_deref(), Some("Disabled"));
        assert_eq!(gpu.pcie_width, None);
        let text = serde_json::to_string(&gpus).unwrap();
        for private in ["1234567890", "GPU-00000000", "00000000:01"] {
            assert!(!text.contains(private), "{private}");
        }
    }

    #[test]
    fn without_a_driver_no_device_is_claimed() {
        let tree = FakeTree::new("gpu-none", &[]);
        let gpus = Gpus::read(&tree.root, &|_, _| None);
        assert!(gpus.devices.is_empty() && gpus.source.starts_with("no device here"));
        tree.write_file("/dev/nvidiactl", b"");
        let gpus = Gpus::read(&tree.root, &|_, _| None);
        assert!(gpus.source.starts_with("unknown"), "{}", gpus.source);
    }

    #[test]
    fn any_text_is_read_without_panic_and_nothing_is_guessed() {
        for end in 0..HAND_MADE.len() {
            let _ = Gpus::parse(&HAND_MADE[..end]);
        }
        for text in ["", "<gpu >", "<gpu </gpu>", "<driver_version>N/A</driver_version>"] {
            let gpus = Gpus::parse(text);
            assert_eq!(gpus.driver, None, "{text}");
            assert!(gpus.devices.iter().all(|gpu| *gpu == Gpu::default()), "{text}");
        }
        assert!(parse_confidential_mode("serial: 12\nCC status:\n").is_empty());
    }
}
