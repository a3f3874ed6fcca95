//! A published report of a real GPU, where the shared vectors are present.

use std::{fs, path::PathBuf};

use confide_evidence::gpu::{DeviceCertificate, GpuReport, Rim, decode_chain, report_bytes};
use sha2::{Digest, Sha384};

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
    let chain = decode_chain(&text).expect("a chain");
    let read: Vec<_> = chain
        .iter()
        .map(|der| DeviceCertificate::parse("certificate", der).expect("a certificate"))
        .collect();
    let names: Vec<_> = read.iter().map(|certificate| certificate.common_name).collect();
    assert_eq!(
        names,
        [
            "GH100 A01 GSP FMC LF",
            "GH100 A01 GSP BROM",
            "NVIDIA GH100 Provisioner ICA 1",
            "NVIDIA GH100 Identity",
            "NVIDIA Device Identity CA"
        ]
    );
    assert_eq!(read.iter().map(|c| c.is_ca).collect::<Vec<_>>(), [false, true, true, true, true]);
    assert!(read[0].fwid.is_some_and(|fwid| fwid.starts_with(&[0xf5, 0xc3, 0x84, 0xae])));
    assert!(read[1..].iter().all(|certificate| certificate.fwid.is_none()));
    assert!(read.iter().all(|certificate| !certificate.has_other_critical_extension));
}

/// NVIDIA's package nv-local-gpu-verifier holds 26 manifests; their folder is named by
/// `CONFIDE_NVIDIA_SAMPLES`.
#[test]
fn nvidias_manifests_have_the_digest_that_their_signature_says() {
    let Some(folder) = std::env::var_os("CONFIDE_NVIDIA_SAMPLES") else {
        return println!("skipped: no folder of manifests in CONFIDE_NVIDIA_SAMPLES");
    };
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "swidtag") {
            continue;
        }
        let rim = Rim::parse(&fs::read(&path).expect("a file")).expect("a manifest");
        let digest = <[u8; 48]>::from(Sha384::digest(rim.signature.document.as_bytes()));
        assert_eq!(digest, rim.signature.document_digest, "{}", path.display());
        assert_eq!((rim.measurements.len(), rim.signature.certificates.len()), (64, 4));
        seen += 1;
    }
    assert!(seen > 0);
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
