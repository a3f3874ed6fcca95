//! A file of the store: its header, and the name of a document.
#![no_main]

use confide_collateral::{DocumentKey, read_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = read_record(data);
    if let Ok(key) = String::from_utf8_lossy(data).parse::<DocumentKey>() {
        // One spelling for each, and none that leaves the folder.
        assert_eq!(key.to_string().as_bytes(), data);
        assert!(!key.to_string().contains(['/', '\0']));
    }
});
