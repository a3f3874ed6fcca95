//! The tunnel's HTTP request: a target that is read is one that an allow-list can hold.
#![no_main]

use confide_channel::tunnel::{AllowList, AllowedOrigins, TunnelRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((request, len))) = TunnelRequest::parse(bytes, &AllowedOrigins::default()) {
        assert!(len <= bytes.len());
        let list = AllowList::new([&request.target]).expect("a read target is a target");
        assert!(list.contains(&request.target));
        assert_eq!(list.targets().next(), Some(request.target.as_str()));
    }
});
