//! The program `transcript` for the zkVM.
#![cfg_attr(target_os = "zkvm", no_std, no_main)]

#[cfg(target_os = "zkvm")]
openvm::entry!(main);

#[cfg(target_os = "zkvm")]
fn main() {
    confide_guest_machine::run_and_reveal(|input| {
        confide_guest_programs::transcript::<confide_guest_machine::OpenVm>(input)
    });
}

#[cfg(not(target_os = "zkvm"))]
fn main() {
    println!(
        "transcript is a program of the zkVM: make guests builds it for riscv32im-risc0-zkvm-elf"
    );
}
