//! The file of API keys: it is read or refused with a reason, and trailing comments change neither.
#![no_main]

use confide_gateway::KeySet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match KeySet::parse(text) {
        Ok(keys) => {
            let again = KeySet::parse(&format!("{text}\n# the end"));
            assert_eq!(again.map(|again| again.len()), Ok(keys.len()));
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
});
