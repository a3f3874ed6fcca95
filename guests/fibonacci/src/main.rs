//! The program `fibonacci` for the zkVM.
#![cfg_attr(target_os = "zkvm", no_std, no_main)]

#[cfg(target_os = "zkvm")]
openvm::entry!(main);

#[cfg(target_os = "zkvm")]
fn main() {
    confide_guest_machine::run_and_reveal(confide_guest_programs::fibonacci);
}

#[cfg(not(target_os = "zkvm"))]
fn main() {
    println!(
        "fibonacci is a program of the zkVM: make guests builds it for riscv32im-risc0-zkvm-elf"
    );
}
