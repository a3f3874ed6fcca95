//! Randomness from the page or from Node for `getrandom`, which `web/build.sh` tells to call this, as it does for hosts
//! without JavaScript (`plain/exports.rs`): both kinds of WebAssembly then share what is compiled for them.
#![allow(unsafe_code, reason = "getrandom passes a pointer and a length")]

use std::{mem::MaybeUninit, slice};

use getrandom::Error;
use wasm_bindgen::prelude::*;

/// The most bytes of one call (Web Cryptography, `Crypto.getRandomValues`).
const CALL_BYTES_MAX: usize = 65_536;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = ["globalThis", "crypto"], js_name = getRandomValues, catch)]
    fn get_random_values(output: &mut [MaybeUninit<u8>]) -> Result<(), JsValue>;
}

/// Fills `output` with random bytes.
///
/// # Safety
/// `output` has room for `length` bytes; they need not be initialised.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    output: *mut u8,
    length: usize,
) -> Result<(), Error> {
    // SAFETY: the caller vouches for the room, and `MaybeUninit` does not demand that it is initialised.
    let output = unsafe { slice::from_raw_parts_mut(output.cast::<MaybeUninit<u8>>(), length) };
    let filled = output.chunks_mut(CALL_BYTES_MAX).try_for_each(get_random_values);
    filled.map_err(|_| Error::UNSUPPORTED)
}
