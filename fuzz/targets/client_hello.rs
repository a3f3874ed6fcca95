//! A ClientHello's server name: what is read of the whole is not read of a part, nor otherwise of more.
#![no_main]

use confide_sni::{HELLO_BYTES_MAX, ServerName, parse_client_hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse_client_hello(bytes);
    if let Ok(Some(name)) = &whole {
        let again = ServerName::parse(name.as_str().as_bytes());
        assert_eq!(again.as_ref(), Ok(name), "a name is its own canonical form");
        let more = [bytes, b"more"].concat();
        assert_eq!(parse_client_hello(&more), whole);
    }
    if whole == Ok(None) {
        assert!(bytes.len() < HELLO_BYTES_MAX);
    }
    // What a part decides, the whole decides alike: no bytes that come later change a route.
    for end in (0..bytes.len()).step_by(7) {
        let part = parse_client_hello(&bytes[..end]);
        if part != Ok(None) {
            assert_eq!(part, whole, "{end} of {}", bytes.len());
        }
    }
});
