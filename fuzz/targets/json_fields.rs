//! Bodies: JSON and streams of events give fields with one path each, or none.
#![no_main]

use std::collections::BTreeSet;

use confide_disclosure::{BodyView, FieldKind, HttpMessage, Number, StartLine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for media in ["application/json", "text/event-stream"] {
        let message = HttpMessage {
            start: StartLine::Response { status: 200 },
            headers: vec![("content-type".into(), media.into())],
            body: bytes.to_vec(),
        };
        let (fields, view) = message.parse_fields().expect("the head is a good one");
        let paths: BTreeSet<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths.len(), fields.len());
        let is_read =
            matches!(view, BodyView::Json | BodyView::Events | BodyView::EventsUnfinished);
        assert_eq!(is_read, paths.contains("response."));
        for field in fields.iter().filter(|field| field.kind == FieldKind::Number) {
            let number = Number::parse(&field.value).expect("canonical numbers are numbers");
            assert_eq!(number.canonical_form().as_bytes(), field.value);
        }
        if media == "application/json" && view == BodyView::Json {
            assert!(
                serde_json::from_slice::<serde_json::Value>(bytes).is_ok() || has_wide(&fields)
            );
        }
    }
});

/// serde_json refuses numbers beyond its floats; these are kept exactly here.
fn has_wide(fields: &[confide_disclosure::Field]) -> bool {
    fields.iter().any(|field| field.kind == FieldKind::Number && field.value.contains(&b'e'))
}
