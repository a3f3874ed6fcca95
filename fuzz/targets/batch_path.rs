//! A path in a batch; what is read must write the same bytes, and leads to some root.
#![no_main]

use confide_evidence::{ReportData, batch::BatchPath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(path) = BatchPath::decode(data) {
        assert_eq!(path.encode(), data);
        assert!(path.index() < path.size());
        let (one, other) = (ReportData::ZERO, ReportData([1; 64]));
        assert_ne!(path.root_report_data(&one), path.root_report_data(&other));
    }
});
