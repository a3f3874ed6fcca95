//! The program `sort` for SP1's machine: the very function that our own guest runs.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod machine;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a program of SP1's machine: bench/peers/sp1/guest/build.sh builds it");
}
