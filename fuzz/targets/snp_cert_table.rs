//! The certificate table next to an SNP report.
#![no_main]

use confide_attester::CertTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(table) = CertTable::parse(data) {
        let _ = (table.endorsements(false), table.endorsements(true));
    }
});
