//! Public values of a proof: what is read again is written as the very same bytes, and as JSON too.
#![no_main]

use confide_statement::Statement;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(statement) = Statement::decode(data) {
        assert_eq!(statement.encode(), data);
        let json = statement.to_json().to_string();
        assert_eq!(Statement::from_json(json.as_bytes()).as_ref(), Ok(&statement));
    }
    if let Ok(statement) = Statement::from_json(data) {
        assert_eq!(Statement::decode(&statement.encode()).as_ref(), Ok(&statement));
    }
});
