//! A report of a GPU, raw or in hexadecimal.
#![no_main]

use confide_evidence::gpu::{GpuReport, report_bytes};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(bytes) = report_bytes(bytes)
        && let Ok(report) = GpuReport::parse(&bytes)
    {
        assert_eq!(report.signed.len() + report.signature.len(), bytes.len());
    }
});
