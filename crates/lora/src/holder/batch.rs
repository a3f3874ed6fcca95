//! The preparation of a batch of masks: drawing, sending under encryption, and receiving the answers.

use std::time::Duration;

use confide_rlwe::{Rng, SeededCiphertext, SmallCiphertext};

use super::{
    connect::HostConnector, connection::HostConnection, error::HolderError, session::HolderSession,
};
use crate::{
    mask::HostEpoch,
    masked::{BatchState, HolderBatch, MaskRequest, PendingBatch},
    meter::StepMeter,
    protocol::{
        BlockCredit, CiphertextBlock, FrameKind, PrepareRequest, PreparedRows, ProtocolError,
    },
};

/// The longest wait for a host that computes a block: the host may be busy with others.
const STEP_DEADLINE: Duration = Duration::from_secs(120);

/// Asks the host to prepare the next batch of an input, and returns the batch.
pub(crate) fn prepare_batch(
    connection: &mut HostConnection,
    connect: &dyn HostConnector,
    session: &HolderSession,
    group: usize,
    meter: &mut StepMeter,
) -> Result<HolderBatch, HolderError> {
    let terms = &session.groups[group].terms;
    let prepare = PrepareRequest { layer: terms.layer, input: terms.input };
    let begun = connection.begin_request(FrameKind::Prepare, |out| prepare.encode(out));
    let id = begun.map_err(|error| HolderError::from_protocol(connect, error))?;
    let mut preparation = BatchPreparation { connection, connect, session, id };
    let first = preparation.receive_credit()?;
    let epoch = HostEpoch(session.welcome.epoch);
    let mut rng = Rng::from_os()?;
    let request = MaskRequest::new(&session.secret, terms, epoch, first.batch, &mut rng)?;
    let pending = preparation.send_masks(request, first, meter)?;
    preparation.receive_batch(pending, meter)
}

/// A request for a batch, with its connection and the id of its frames.
struct BatchPreparation<'a> {
    connection: &'a mut HostConnection,
    connect: &'a dyn HostConnector,
    session: &'a HolderSession,
    id: u32,
}

impl BatchPreparation<'_> {
    /// Sends the encrypted masks, block by block, as the host's credit allows.
    fn send_masks(
        &mut self,
        mut request: MaskRequest<'_>,
        mut credit: BlockCredit,
        meter: &mut StepMeter,
    ) -> Result<PendingBatch, HolderError> {
        let context = self.session.secret.context();
        let mut first = 0;
        let mut bytes = Vec::new();
        loop {
            let block = request.next_block(meter)?;
            if block.is_empty() {
                return Ok(request.finish()?);
            }
            bytes.clear();
            bytes.reserve(block.len() * SeededCiphertext::wire_bytes(context));
            block.iter().for_each(|ciphertext| bytes.extend(ciphertext.to_bytes(context)));
            while credit.blocks == 0 {
                credit = self.receive_credit()?;
            }
            credit.blocks -= 1;
            let part = CiphertextBlock { first, count: block.len() as u16, ciphertexts: &bytes };
            let sent = self.connection.send(FrameKind::Block, self.id, |out| part.encode(out));
            sent.map_err(|error| self.to_holder_error(error))?;
            first += block.len() as u32;
        }
    }

    fn receive_credit(&mut self) -> Result<BlockCredit, HolderError> {
        let answer = self.connection.receive(self.id, "credit", STEP_DEADLINE);
        let credit = answer.and_then(|answer| match answer.kind {
            FrameKind::Credit => BlockCredit::decode(answer.payload),
            got => Err(ProtocolError::Unexpected { wanted: "credit", got }),
        });
        credit.map_err(|error| self.to_holder_error(error))
    }

    /// Receives and decrypts the answers to every row.
    fn receive_batch(
        &mut self,
        mut pending: PendingBatch,
        meter: &mut StepMeter,
    ) -> Result<HolderBatch, HolderError> {
        let (connect, context) = (self.connect, self.session.secret.context());
        let failed = |error| HolderError::from_protocol(connect, error);
        let length = SmallCiphertext::wire_bytes(context, context.n());
        let mut next = 0;
        loop {
            let answer = self.connection.receive(self.id, "a prepared batch", STEP_DEADLINE);
            let answer = answer.map_err(failed)?;
            match answer.kind {
                FrameKind::Credit => continue,
                FrameKind::Prepared => {}
                got => {
                    let wanted = "a prepared batch";
                    return Err(failed(ProtocolError::Unexpected { wanted, got }));
                }
            }
            let part = PreparedRows::decode(answer.payload).map_err(failed)?;
            if part.first != next || part.ciphertexts.len() != usize::from(part.count) * length {
                let wanted = "complete ciphertexts of the next rows";
                let (message, field) = ("prepared", "ciphertexts");
                return Err(failed(ProtocolError::Field { message, field, wanted }));
            }
            next += u32::from(part.count);
            let parts = part.ciphertexts.chunks_exact(length);
            let answers = parts.map(|bytes| SmallCiphertext::from_bytes(context, bytes));
            let answers = answers.collect::<Result<Vec<_>, _>>()?;
            pending = match pending.accept_answers(&self.session.secret, &answers, meter)? {
                BatchState::Pending(pending) => pending,
                BatchState::Ready(batch) => return Ok(batch),
            };
        }
    }

    fn to_holder_error(&self, error: ProtocolError) -> HolderError {
        HolderError::from_protocol(self.connect, error)
    }
}
