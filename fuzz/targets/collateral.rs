//! QuoteCollateralV3 JSON, with all documents and chains in it.
#![no_main]

use confide_verifier::Endorsements;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Endorsements::parse(data);
});
