//! What a person names to be shown or proven: every name in a predicate is one that can be shown.
#![no_main]

use confide_disclosure::{Kind, Prove, Show};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Show::parse(text);
        if let Ok(wish) = Prove::parse(text) {
            check(wish);
        }
    }
});

fn check(wish: Prove) {
    match wish {
        Prove::Compare { path, comparison } => {
            is_field(&path);
            for kind in [Kind::Number, Kind::String] {
                let _ = comparison.shown(kind);
            }
        }
        Prove::BytesContain { text, .. } => assert!(!text.is_empty()),
        Prove::FieldContains { path, text } => {
            is_field(&path);
            assert!(!text.is_empty());
        }
        Prove::FieldSha256 { path, sha256 } => {
            is_field(&path);
            let digits: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
            let again = Prove::parse(&format!("sha256({path}) == {digits}"));
            assert_eq!(again, Ok(Prove::FieldSha256 { path, sha256 }));
        }
        Prove::Equal { path, other, .. } => {
            is_field(&path);
            is_field(&other);
        }
    }
}

fn is_field(path: &str) {
    assert_eq!(Show::parse(path), Ok(Show::Field(path.into())));
}
