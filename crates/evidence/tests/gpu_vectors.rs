//! A published report of a real GPU, where the shared vectors are present.

use std::{fs, path::PathBuf};

use confide_evidence::gpu::{GpuReport, decode_chain, report_bytes};

#[test]
fn a_hoppers_report_reads_as_its_documents_say() {
    let Some(text) = foreign("gpu/hopper-report.hex.txt") else { return };
    let bytes = report_bytes(&text).expect("hexadecimal");
    assert_eq!(bytes.len(), 4117);
    let report = GpuReport::parse(&bytes).expect("a report");
    assert_eq!(report.nonce[..4], [0x93, 0x1d, 0x8d, 0xd0]);
    assert_eq!(report.measurements.len(), 64);
    assert!(report.measurements.iter().all(|measurement| measurement.value.len() == 48));
    let opaque = &report.opaque;
    assert_eq!(opaque.driver_version, Some("550.90.07"));
    assert_eq!(opaque.vbios_version.as_deref(), Some("96.00.9f.00.01"));
    assert_eq!((opaque.project, opaque.project_sku), (Some("1010"), Some("0200")));
    assert_eq!(opaque.chip_sku, Some("882"));
    assert_eq!(opaque.nvdec0, Some(false));
    assert_eq!(opaque.protected_pcie, Some(false));
    assert_eq!((opaque.feature_flag, opaque.version), (None, None));
    assert!(opaque.fwid.is_some_and(|fwid| fwid.starts_with(&[0xf5, 0xc3, 0x84, 0xae])));
}

#[test]
fn a_hoppers_chain_has_five_certificates() {
    let Some(text) = foreign("gpu/hopper-cert-chain.pem") else { return };
    assert_eq!(decode_chain(&text).expect("a chain").len(), 5);
}

fn foreign(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var_os("CONFIDE_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared").into());
    let bytes = fs::read(folder.join("vectors").join(name)).ok();
    if bytes.is_none() {
        println!("skipped: no foreign vectors");
    }
    bytes
}
