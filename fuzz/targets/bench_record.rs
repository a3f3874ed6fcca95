//! A record of the instrument, as somebody else sends it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(loaded) = confide_bench::LoadedRecord::from_document(text) else { return };
    // What was read is written, and what is written reads back to the same.
    let document = loaded.to_json_document().expect("a record that was read is JSON");
    let again =
        confide_bench::LoadedRecord::from_document(&document).expect("a document reads back");
    assert_eq!(again.to_json_document().expect("and is JSON"), document);
    let _ = (loaded.facts(), loaded.metric_values());
});
