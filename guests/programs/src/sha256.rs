//! SHA-256 of a message that is not shown.

use confide_statement::{Sha256 as Claim, Statement};

use crate::{
    error::ProgramError,
    input::{Input, Source},
    machine::Sha256,
};

/// The longest message.
pub const SHA256_BYTES_MAX: u32 = 64 * 1024;

/// Input: the message's length, the message.
///
/// # Errors
/// If the input is not as above or the message is longer than [`SHA256_BYTES_MAX`].
pub fn sha256<M: Sha256>(input: &mut Input<impl Source>) -> Result<Statement, ProgramError> {
    let message_bytes = input.u32_between("message", 0, SHA256_BYTES_MAX)?;
    let message = input.bytes("message", message_bytes as usize)?;
    input.finish()?;
    Ok(Statement::Sha256(Claim { message_bytes, message_sha256: M::sha256(&message) }))
}
