//! A list of an adapter host's clients: it is read or refused by its line, and never serves a stranger.
#![no_main]

use confide_lora::host::ClientList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(clients) = ClientList::parse(text) else { return };
    let again = ClientList::parse(&format!("{text}\n# the end"));
    assert_eq!(again.map(|again| again.is_empty()), Ok(clients.is_empty()));
    // Nobody is known by the credential of those who have none.
    assert_eq!(clients.name_of(b""), None);
    assert_eq!(clients.account(b"", false).is_ok(), clients.is_empty());
});
