//! A disclosure and a holder's file: what is read is what would be written, and checking it ends.
#![no_main]

use confide_disclosure::{Disclosure, NotarisedSession};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(disclosure) = Disclosure::decode(bytes) {
        assert_eq!(disclosure.encode(), bytes);
        let _ = disclosure.verify(None);
    }
    if let Ok(session) = NotarisedSession::decode(bytes) {
        assert_eq!(session.encode().as_slice(), bytes);
        let _ = session.check();
    }
});
