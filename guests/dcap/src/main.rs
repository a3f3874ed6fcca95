//! The program `dcap` for the VM: its input, [`run`](confide_guest_dcap::run), the digest of its
//! statement.
#![cfg_attr(target_os = "zkvm", no_std, no_main)]

#[cfg(target_os = "zkvm")]
openvm::entry!(main);

#[cfg(target_os = "zkvm")]
fn main() {
    use confide_guest_dcap::{GuestCrypto, OpenVm, run};
    use confide_verifier::Crypto;

    OpenVm::set_up();
    let crypto = GuestCrypto::<OpenVm>::new();
    let input = openvm::io::read_vec();
    match run(&input, &crypto) {
        Ok(statement) => {
            let digest = statement.digest_by(|bytes| crypto.sha256(&[bytes]));
            openvm::io::reveal_bytes32(digest);
        }
        // No proof of a run that ends so.
        Err(_) => openvm::process::panic(),
    }
}

#[cfg(not(target_os = "zkvm"))]
fn main() {
    println!("dcap is a program of the zkVM; build it for riscv32im-risc0-zkvm-elf");
}
