//! Files that feed a PCCS, and the faults of a simulated one.
#![no_main]

use confide_pccs::{DocumentRequest, Faults, split_endorsements};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(faults) = Faults::from_json(bytes) {
        let text = serde_json::to_vec(&faults).expect("faults are written");
        assert_eq!(Faults::from_json(&text).expect("and read again"), faults);
    }
    for document in split_endorsements(bytes, 0).into_iter().flatten() {
        if let Some(wanted) = DocumentRequest::from_stored_key(document.kind, &document.key) {
            assert_eq!(wanted.key(), document.key);
        }
    }
});
