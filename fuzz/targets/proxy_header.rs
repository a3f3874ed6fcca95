//! The PROXY protocol's header: what is read of the whole is not read of a part, nor otherwise of more.
#![no_main]

use confide_http::parse_proxy_header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((announced, length))) = parse_proxy_header(bytes) {
        assert!(length <= bytes.len() && length <= 16 + 2048);
        let header = parse_proxy_header(&bytes[..length]).expect("the header alone");
        assert_eq!(header, Some((announced, length)));
        for end in 0..length {
            let part = parse_proxy_header(&bytes[..end]).expect("a part of a header");
            assert_eq!(part, None, "{end} of {length}");
        }
    }
});
