//! A message of session binding.
#![no_main]

use confide_evidence::session_message::SessionMessage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = SessionMessage::decode(data) {
        assert_eq!(message.encode(), data);
    }
});
