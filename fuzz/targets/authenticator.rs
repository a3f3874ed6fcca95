//! Exported authenticators, the requests for them, and messages of `confide-session/3`.
#![no_main]

use confide_evidence::{
    authenticator::{AuthenticatorAnswer, AuthenticatorRequest, encode_finished},
    binder::Role,
    session_message_3::SessionMessage3,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for asker in [Role::Client, Role::Server] {
        if let Ok(request) = AuthenticatorRequest::decode(asker, data) {
            let again = AuthenticatorRequest::decode(asker, &request.encode());
            assert_eq!(again.as_ref(), Ok(&request));
        }
    }
    if let Ok(AuthenticatorAnswer::Authenticator(read)) = AuthenticatorAnswer::decode(data) {
        let finished = encode_finished(read.mac);
        assert_eq!([read.certificate, read.certificate_verify, &finished].concat(), data);
        let _ = read.find_cmw(&AuthenticatorRequest::new(Role::Client, [0; 32]));
    }
    if let Ok(message) = SessionMessage3::decode(data) {
        assert_eq!(message.encode(), data);
    }
});
