//! A batch of masks: made, sent encrypted, and answered.

use std::time::Duration;

use confide_rlwe::{Rng, SeededCiphertext, SmallCiphertext};

use super::{Connect, HolderError, connection::Connection, session::Session};
use crate::{
    Epoch, Meter,
    masked::{Accepted, Awaiting, HolderBatch, Requesting},
    protocol::{Block, Credit, Kind, Prepare, Prepared, ProtocolError},
};

/// A host that waits for its turn to compute a block is silent for so long.
const STEP_DEADLINE: Duration = Duration::from_secs(120);

/// Has the host prepare the next batch of an input.
pub(crate) fn prepare(
    connection: &mut Connection,
    connect: &dyn Connect,
    session: &Session,
    group: usize,
    meter: &mut Meter,
) -> Result<HolderBatch, HolderError> {
    let of = |error| HolderError::of(connect, error);
    let terms = &session.groups[group].terms;
    let prepare = Prepare { layer: terms.layer, input: terms.input };
    let id = connection.begin(Kind::Prepare, |out| prepare.encode(out)).map_err(of)?;
    let first = receive_credit(connection, id).map_err(of)?;
    let epoch = Epoch(session.welcome.epoch);
    let mut rng = Rng::from_os()?;
    let requesting = Requesting::new(&session.secret, terms, epoch, first.batch, &mut rng)?;
    let awaiting = send_masks(connection, connect, session, requesting, (id, first), meter)?;
    receive(connection, connect, session, awaiting, id, meter)
}

fn send_masks(
    connection: &mut Connection,
    connect: &dyn Connect,
    session: &Session,
    mut requesting: Requesting<'_>,
    (id, mut credit): (u32, Credit),
    meter: &mut Meter,
) -> Result<Awaiting, HolderError> {
    let of = |error| HolderError::of(connect, error);
    let context = session.secret.context();
    let mut first = 0;
    let mut bytes = Vec::new();
    loop {
        let block = requesting.next_block(meter)?;
        if block.is_empty() {
            return Ok(requesting.sent()?);
        }
        bytes.clear();
        bytes.reserve(block.len() * SeededCiphertext::wire_bytes(context));
        block.iter().for_each(|ciphertext| bytes.extend(ciphertext.to_bytes(context)));
        while credit.blocks == 0 {
            credit = receive_credit(connection, id).map_err(of)?;
        }
        credit.blocks -= 1;
        let part = Block { first, count: block.len() as u16, ciphertexts: &bytes };
        connection.send(Kind::Block, id, |out| part.encode(out)).map_err(of)?;
        first += block.len() as u32;
    }
}

fn receive_credit(connection: &mut Connection, id: u32) -> Result<Credit, ProtocolError> {
    let answer = connection.receive(id, "credit", STEP_DEADLINE)?;
    match answer.kind {
        Kind::Credit => Credit::decode(answer.payload),
        got => Err(ProtocolError::Unexpected { wanted: "credit", got }),
    }
}

fn receive(
    connection: &mut Connection,
    connect: &dyn Connect,
    session: &Session,
    mut awaiting: Awaiting,
    id: u32,
    meter: &mut Meter,
) -> Result<HolderBatch, HolderError> {
    let of = |error| HolderError::of(connect, error);
    let context = session.secret.context();
    let length = SmallCiphertext::wire_bytes(context, context.n());
    let mut next = 0;
    loop {
        let answer = connection.receive(id, "a prepared batch", STEP_DEADLINE).map_err(of)?;
        match answer.kind {
            Kind::Credit => continue,
            Kind::Prepared => {}
            got => return Err(of(ProtocolError::Unexpected { wanted: "a prepared batch", got })),
        }
        let part = Prepared::decode(answer.payload).map_err(of)?;
        if part.first != next || part.ciphertexts.len() != usize::from(part.count) * length {
            let wanted = "the next rows, each whole";
            let (message, field) = ("prepared", "ciphertexts");
            return Err(of(ProtocolError::Field { message, field, wanted }));
        }
        next += u32::from(part.count);
        let parts = part.ciphertexts.chunks_exact(length);
        let answers = parts.map(|bytes| SmallCiphertext::from_bytes(context, bytes));
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        awaiting = match awaiting.accept(&session.secret, &answers, meter)? {
            Accepted::More(awaiting) => awaiting,
            Accepted::Ready(batch) => return Ok(batch),
        };
    }
}
