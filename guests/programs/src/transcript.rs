//! A part of a transcript under the root that a notary signed, and what is said of it.
//!
//! The formats are those of docs/disclosure.md: salted chunks of 64 bytes of either direction, and
//! fields as digests of their values; inner nodes SHA-256(0x01 ‖ left ‖ right).

use alloc::{string::String, vec::Vec};
use core::marker::PhantomData;

use confide_statement::{
    DEPTH_MAX, Direction, PATH_BYTES_MAX, Predicate, Statement, TEXT_BYTES_MAX, Transcript,
};

use crate::{
    error::ProgramError,
    input::{Input, Source},
    machine::Sha256,
};

/// The largest number of chunks that one proof looks into: 1 KiB. More of a transcript is better opened.
pub const LEAVES_MAX: u32 = 16;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64;

const SALT_BYTES: usize = 16;

/// The longest value of a number: sign and 19 digits, as 64 bits have.
const NUMBER_BYTES_MAX: u32 = 20;

const CHUNK_TAG: u8 = 0x00;
const NODE_TAG: u8 = 0x01;
const FIELD_TAG: u8 = 0x02;
const VALUE_TAG: u8 = 0x03;

/// The kind of a field that is a number.
const NUMBER_KIND: u8 = 3;

type Hash = [u8; 32];

/// Input: the predicate (0 contains, 1 number between), the tree's depth, then
///
/// - contains: the direction (1 request, 2 response), the text's length and the text, the place of
///   the text in the joined chunks, the index of the first chunk, their count, and of each its
///   length, its bytes and its salt;
/// - number between: the least and the greatest number (two words each, the low one first), the
///   path's length and the path, the index of the field, the value's length and the value, its salt,
///   whether a commitment belongs to it (0 or 1) and, where one does, the commitment;
///
/// and the nodes that lead to the root, level by level from below, left to right.
///
/// # Errors
/// If the input is not as above or the predicate does not hold.
pub fn transcript<M: Sha256>(input: &mut Input<impl Source>) -> Result<Statement, ProgramError> {
    let predicate = input.u32_between("predicate", 0, 1)?;
    let depth = input.u32_between("depth", 0, DEPTH_MAX.into())? as u8;
    let (predicate, root) = match predicate {
        0 => contains::<M>(input, depth)?,
        _ => number_between::<M>(input, depth)?,
    };
    input.finish()?;
    let statement = Statement::Transcript(Transcript { root, depth, predicate });
    statement.check()?;
    Ok(statement)
}

fn contains<M: Sha256>(
    input: &mut Input<impl Source>,
    depth: u8,
) -> Result<(Predicate, Hash), ProgramError> {
    let direction = Direction::from_byte(input.u32_between("direction", 1, 2)? as u8);
    let wanted = "1 or 2";
    let direction = direction.ok_or(ProgramError::Value { subject: "direction", wanted })?;
    let text = input.text("text", TEXT_BYTES_MAX)?;
    let place = input.u32("place of the text")? as usize;
    let first = input.u32("index")?;
    let count = input.u32_between("chunks", 1, LEAVES_MAX)?;
    let (mut joined, mut leaves) = (Vec::new(), Vec::new());
    for index in first..first.saturating_add(count) {
        let length = input.u32_between("chunk", 0, CHUNK_BYTES as u32)? as usize;
        if length > 0 && joined.len() != leaves.len() * CHUNK_BYTES {
            return Err(ProgramError::AfterEnd);
        }
        let chunk = input.bytes("chunk", length)?;
        let salt: [u8; SALT_BYTES] = input.array("salt")?;
        joined.extend_from_slice(&chunk);
        leaves.push(
            Message::<M>::new(&[CHUNK_TAG, direction.byte()])
                .append(&index.to_be_bytes())
                .append(&salt)
                .append(&chunk)
                .hash(),
        );
    }
    let root = root_of::<M>(input, depth, first, leaves)?;
    let found = joined.get(place..).is_some_and(|rest| rest.starts_with(text.as_bytes()));
    if !found {
        return Err(ProgramError::Predicate { wanted: "the text at the place that is named" });
    }
    Ok((Predicate::Contains { direction, text }, root))
}

fn number_between<M: Sha256>(
    input: &mut Input<impl Source>,
    depth: u8,
) -> Result<(Predicate, Hash), ProgramError> {
    let (least, greatest) = (input.i64("least number")?, input.i64("greatest number")?);
    let path = input.text("path", PATH_BYTES_MAX)?;
    let index = input.u32("index")?;
    let length = input.u32_between("value", 1, NUMBER_BYTES_MAX)? as usize;
    let value = input.bytes("value", length)?;
    let salt: [u8; SALT_BYTES] = input.array("salt")?;
    let value_digest = Message::<M>::new(&[VALUE_TAG]).append(&salt).append(&value).hash();
    let leaf = Message::<M>::new(&[FIELD_TAG, NUMBER_KIND])
        .append(&(path.len() as u16).to_be_bytes())
        .append(path.as_bytes())
        .append(&value_digest);
    let leaf = match input.u32_between("commitment", 0, 1)? {
        0 => leaf.append(&[0]),
        _ => leaf.append(&[1]).append(&input.array::<32>("commitment")?),
    };
    let root = root_of::<M>(input, depth, index, alloc::vec![leaf.hash()])?;
    let number = parse_integer(&value).ok_or(ProgramError::Predicate { wanted: "an integer" })?;
    if !(least..=greatest).contains(&number) {
        return Err(ProgramError::Predicate { wanted: "a number that is not outside" });
    }
    Ok((Predicate::NumberBetween { path, least, greatest }, root))
}

/// The root over neighbouring leaves, the first of them at `first`. The nodes next to them are read
/// from the input.
fn root_of<M: Sha256>(
    input: &mut Input<impl Source>,
    depth: u8,
    mut first: u32,
    mut level: Vec<Hash>,
) -> Result<Hash, ProgramError> {
    let end = u64::from(first) + level.len() as u64;
    if end > 1 << depth {
        let (subject, least, most) = ("leaves", 0, 1 << depth);
        return Err(ProgramError::Limit { subject, least, most, got: end });
    }
    for _ in 0..depth {
        let (mut above, mut own) = (Vec::new(), level.iter());
        if first % 2 == 1 {
            let left = input.array("node")?;
            // There always is a first one: a level has at least one node.
            above.extend(own.next().map(|right| node::<M>(&left, right)));
        }
        while let Some(left) = own.next() {
            above.push(match own.next() {
                Some(right) => node::<M>(left, right),
                None => node::<M>(left, &input.array("node")?),
            });
        }
        (first, level) = (first / 2, above);
    }
    Ok(level[0])
}

fn node<M: Sha256>(left: &Hash, right: &Hash) -> Hash {
    Message::<M>::new(&[NODE_TAG]).append(left).append(right).hash()
}

/// Reads an integer in its canonical form: a sign where it is negative, digits, no leading zero.
fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical.then_some(())?;
    String::from_utf8_lossy(text).parse().ok()
}

/// Bytes to be hashed.
struct Message<M> {
    bytes: Vec<u8>,
    machine: PhantomData<M>,
}

impl<M: Sha256> Message<M> {
    fn new(bytes: &[u8]) -> Self {
        // Room for a chunk or two nodes, so that nothing is copied twice.
        let mut message = Vec::with_capacity(2 * CHUNK_BYTES);
        message.extend_from_slice(bytes);
        Self { bytes: message, machine: PhantomData }
    }

    fn append(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn hash(self) -> Hash {
        M::sha256(&self.bytes)
    }
}
