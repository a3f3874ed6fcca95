//! The salt in a request body: another reader of the same JSON finds it, once, and everything else as it was.
#![no_main]

use confide_gateway::insert_cache_salt;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(salted) = insert_cache_salt(bytes, "the salt") else { return };
    let Ok(mut before) = serde_json::from_slice::<Value>(bytes) else {
        // A value that is kept as it is written may be out of range, and nothing else.
        return;
    };
    let mut after: Value = serde_json::from_slice(&salted).expect("a salted body is JSON");
    let own = before.as_object_mut().expect("only an object is salted");
    own.retain(|name, _| !is_salt(name));
    let members = after.as_object_mut().expect("a salted body is an object");
    assert_eq!(members.remove("cache_salt"), Some("the salt".into()));
    assert!(!members.keys().any(|name| is_salt(name)));
    assert_eq!(after, before);
    // Salted again, it has the new salt only.
    let again = insert_cache_salt(&salted, "another").expect("a salted body can be salted");
    let again: Value = serde_json::from_slice(&again).expect("a salted body is JSON");
    assert_eq!(again["cache_salt"], "another");
});

/// Whether a reader that folds cases could take a name for `cache_salt`.
fn is_salt(name: &str) -> bool {
    name.to_uppercase() == "CACHE_SALT"
}
