//! An excerpt of a receipt's bodies: what is read is what would be written, and checking it ends.
#![no_main]

use confide_disclosure::{Direction, DirectionCommitment, Excerpt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(excerpt) = Excerpt::decode(bytes) {
        assert_eq!(excerpt.encode(), bytes);
        for depth in [4, 18] {
            let commitment = DirectionCommitment { depth, length: [1; 32], root: [2; 32] };
            let _ = excerpt.request.check(Direction::Request, &commitment);
            let _ = excerpt.response.check(Direction::Response, &commitment);
        }
    }
});
