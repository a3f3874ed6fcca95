//! OpenAI's request bodies: what is accepted keeps within the limits it was read with.
#![no_main]

use confide_serve::{parse_chat, parse_completion};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    const PROMPT_TOKENS_MAX: u32 = 1000;
    for parsed in [parse_chat(bytes, PROMPT_TOKENS_MAX), parse_completion(bytes, PROMPT_TOKENS_MAX)]
        .into_iter()
        .flatten()
    {
        let request = parsed.request;
        assert_eq!(request.prompt_tokens_max, PROMPT_TOKENS_MAX);
        assert_ne!(request.max_tokens, Some(0));
        // OpenAI's reference: up to four sequences.
        assert!(request.stop.len() <= 4 && request.stop.iter().all(|stop| !stop.is_empty()));
    }
});
