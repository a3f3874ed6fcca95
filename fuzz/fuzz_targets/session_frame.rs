//! Messages of the session exchange: whatever is read is what would be written.
#![no_main]

use confide_evidence::session_message::SessionMessage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = SessionMessage::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
});
