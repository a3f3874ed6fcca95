//! The border to the host: its functions, and those of this module that it calls. Places in this module's memory are
//! pointers and lengths.
#![allow(unsafe_code, reason = "calls across the module's border take pointers")]

use getrandom::Error;

use crate::plain::{
    answer_evidence, answer_guarantee, answer_policy, answer_server, host::Host, to_answer,
};

// The host reads and writes only the ranges that it is given, all of which outlive the call.
#[link(wasm_import_module = "confide")]
unsafe extern "C" {
    fn export(
        output: *mut u8,
        output_length: usize,
        label: *const u8,
        label_length: usize,
        context: *const u8,
        context_length: usize,
    ) -> u32;
    fn random(output: *mut u8, length: usize) -> u32;
    fn read(room: *mut u8, length: usize) -> i32;
    safe fn unix_seconds() -> u64;
    fn write(bytes: *const u8, length: usize) -> u32;
}

/// The program that runs this module.
struct Embedder;

impl Host for Embedder {
    fn export(output: &mut [u8], label: &[u8], context: Option<&[u8]>) -> bool {
        let context = context.unwrap_or_default();
        // SAFETY: each pointer comes with the length of the slice from which it is taken.
        let exported = unsafe {
            export(
                output.as_mut_ptr(),
                output.len(),
                label.as_ptr(),
                label.len(),
                context.as_ptr(),
                context.len(),
            )
        };
        exported == 1
    }

    fn read(room: &mut [u8]) -> Option<usize> {
        // SAFETY: pointer and length are those of the slice.
        let read = unsafe { read(room.as_mut_ptr(), room.len()) };
        usize::try_from(read).ok()
    }

    fn write(bytes: &[u8]) -> bool {
        // SAFETY: pointer and length are those of the slice.
        unsafe { write(bytes.as_ptr(), bytes.len()) == 1 }
    }

    fn unix_seconds() -> u64 {
        unix_seconds()
    }
}

/// Randomness for `getrandom`, which `web/build.sh` tells to call this.
///
/// # Safety
/// `output` has room for `length` bytes; they need not be initialised.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    output: *mut u8,
    length: usize,
) -> Result<(), Error> {
    // SAFETY: the caller vouches for the room.
    match unsafe { random(output, length) } {
        1 => Ok(()),
        _ => Err(Error::UNSUPPORTED),
    }
}

/// Makes room for an input of `length` bytes, and returns its address.
#[unsafe(no_mangle)]
extern "C" fn allocate(length: usize) -> *mut u8 {
    Box::leak(vec![0; length].into_boxed_slice()).as_mut_ptr()
}

/// The place of an answer: its address in the upper half, its length in the lower one.
fn place(answer: Vec<u8>) -> u64 {
    let answer = Box::leak(answer.into_boxed_slice());
    (answer.as_ptr() as usize as u64) << 32 | answer.len() as u64
}

/// The input that the host has written.
///
/// # Safety
/// `address` is one that [`allocate`] returned for `length` bytes, and is passed to one call only.
unsafe fn input<'a>(address: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: `allocate` has made and initialised the range, nothing frees it, and nothing else refers to it.
    unsafe { std::slice::from_raw_parts(address, length) }
}

/// See `answer_policy`.
///
/// # Safety
/// As for [`input`].
#[unsafe(no_mangle)]
unsafe extern "C" fn read_policy(address: *const u8, length: usize) -> u64 {
    // SAFETY: the host vouches for the place.
    place(to_answer(answer_policy::<Embedder>(unsafe { input(address, length) })))
}

/// See `answer_evidence`.
///
/// # Safety
/// As for [`input`].
#[unsafe(no_mangle)]
unsafe extern "C" fn appraise_evidence(address: *const u8, length: usize) -> u64 {
    // SAFETY: the host vouches for the place.
    place(to_answer(answer_evidence::<Embedder>(unsafe { input(address, length) })))
}

/// See `answer_guarantee`.
///
/// # Safety
/// As for [`input`].
#[unsafe(no_mangle)]
unsafe extern "C" fn check_guarantee(address: *const u8, length: usize) -> u64 {
    // SAFETY: the host vouches for the place.
    place(to_answer(answer_guarantee(unsafe { input(address, length) })))
}

/// See `answer_server`.
///
/// # Safety
/// As for [`input`].
#[unsafe(no_mangle)]
unsafe extern "C" fn appraise_session(address: *const u8, length: usize) -> u64 {
    // SAFETY: the host vouches for the place.
    place(to_answer(answer_server::<Embedder>(unsafe { input(address, length) })))
}
