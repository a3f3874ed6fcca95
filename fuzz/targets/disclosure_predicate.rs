//! Selectors and predicates that a person writes: every name in a predicate is one that can be shown.
#![no_main]

use confide_disclosure::{FieldKind, Predicate, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Selector::parse(text);
        if let Ok(wish) = Predicate::parse(text) {
            check(wish);
        }
    }
});

fn check(wish: Predicate) {
    match wish {
        Predicate::Compare { path, comparison } => {
            is_field(&path);
            for kind in [FieldKind::Number, FieldKind::String] {
                let _ = comparison.describe(kind);
            }
        }
        Predicate::BytesContain { text, .. } => assert!(!text.is_empty()),
        Predicate::FieldContains { path, text } => {
            is_field(&path);
            assert!(!text.is_empty());
        }
        Predicate::FieldSha256 { path, sha256 } => {
            is_field(&path);
            let digits: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
            let again = Predicate::parse(&format!("sha256({path}) == {digits}"));
            assert_eq!(again, Ok(Predicate::FieldSha256 { path, sha256 }));
        }
        Predicate::Equal { path, other, .. } => {
            is_field(&path);
            is_field(&other);
        }
    }
}

fn is_field(path: &str) {
    assert_eq!(Selector::parse(path), Ok(Selector::Field(path.into())));
}
