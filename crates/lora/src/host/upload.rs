//! The upload of a batch. Blocks pass through a bounded queue, so that preparation does not delay the
//! products that tokens wait for.

use std::{sync::Arc, time::Duration};

use confide_rlwe::{Rng, SeededCiphertext};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::timeout,
};

use super::{
    adapter_host::AdapterHost,
    peers::PreparationPermit,
    sessions::{BATCHES_MAX, HostSession},
    writer::SharedWriter,
};
use crate::{
    masked::HostPreparation,
    meter::StepMeter,
    protocol::{
        BlockCredit, CiphertextBlock, FrameKind, PrepareRequest, PreparedRows, ProtocolError,
        Refusal,
    },
};

/// The number of blocks that a key holder may send before the host has used one. Sending and computing
/// overlap, and a waiting batch takes 4 MB.
pub const WINDOW: u16 = 4;

/// The time limit for the next block: a started batch holds memory for its sums.
pub(crate) const BLOCK_DEADLINE: Duration = Duration::from_secs(30);

/// The greatest length of one answer frame, in bytes.
const ANSWER_BYTES: usize = 512 * 1024;

/// The sending end of the queue through which the reading task passes blocks to the computing task.
pub(crate) struct BatchUpload {
    id: u32,
    blocks: mpsc::Sender<Vec<u8>>,
    next: u32,
}

/// The reason why a block was not accepted.
pub(crate) enum BlockError {
    /// The batch has ended already.
    BatchEnded,
    /// The block was not credited, or is out of order.
    BeyondCredit,
}

impl BatchUpload {
    /// Starts the next batch of an input, and the task that computes it.
    pub(crate) fn begin<S>(
        host: &Arc<AdapterHost>,
        session: &Arc<HostSession>,
        writer: &SharedWriter<S>,
        id: u32,
        prepare: PrepareRequest,
    ) -> Result<Self, ProtocolError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let found = session.adapter.group_index(prepare.layer, prepare.input);
        let group = found.ok_or(Refusal::NotOffered)?;
        let input = session.adapter.groups()[group].masked_weights().ok_or(Refusal::NotOffered)?;
        let room = host.begin_preparation(session).ok_or(Refusal::Busy)?;
        let (preparing, batch) = {
            let mut sequence = session.sequences.lock(group).ok_or(Refusal::NotOffered)?;
            if sequence.live_batch_count() >= BATCHES_MAX {
                return Err(Refusal::Busy.into());
            }
            let batch = sequence.next_batch_index();
            let key = host.process_key();
            let preparing = input.start_batch(key, &mut sequence, key.epoch(), batch);
            (preparing.map_err(Refusal::from)?, batch)
        };
        let (sender, receiver) = mpsc::channel(WINDOW.into());
        let task = BatchTask {
            host: host.clone(),
            session: session.clone(),
            writer: writer.clone(),
            id,
            group,
            batch,
            blocks: receiver,
            room: Some(room),
        };
        tokio::spawn(task.run(preparing));
        Ok(Self { id, blocks: sender, next: 0 })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.blocks.is_closed()
    }

    pub(crate) fn push_block(&mut self, block: &CiphertextBlock<'_>) -> Result<(), BlockError> {
        if self.has_ended() {
            return Err(BlockError::BatchEnded);
        }
        if block.first != self.next {
            return Err(BlockError::BeyondCredit);
        }
        self.next += u32::from(block.count);
        self.blocks.try_send(block.ciphertexts.to_vec()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => BlockError::BeyondCredit,
            mpsc::error::TrySendError::Closed(_) => BlockError::BatchEnded,
        })
    }
}

struct BatchTask<S> {
    host: Arc<AdapterHost>,
    session: Arc<HostSession>,
    writer: SharedWriter<S>,
    id: u32,
    group: usize,
    batch: u64,
    blocks: mpsc::Receiver<Vec<u8>>,
    /// The permit for the sums, which is held until the answers are computed.
    room: Option<PreparationPermit>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> BatchTask<S> {
    async fn run(mut self, preparing: HostPreparation) {
        let refusal = match self.compute_batch(preparing).await {
            Ok(()) => return,
            Err(ProtocolError::Refused(refusal)) => refusal,
            // The stream failed, which the reading task notices as well.
            Err(_) => return,
        };
        self.host.note_refusal(&self.session, refusal);
        self.release_permit();
        let _ = self.writer.lock().await.send_refusal(self.id, refusal).await;
    }

    async fn compute_batch(&mut self, mut preparing: HostPreparation) -> Result<(), ProtocolError> {
        let columns = self.session.adapter.groups()[self.group].columns();
        self.send_credit(WINDOW).await?;
        let mut pushed = 0;
        while pushed < columns {
            let waited = timeout(BLOCK_DEADLINE, self.blocks.recv()).await;
            // A closed channel means that the connection ended, so no refusal can be sent.
            let Some(block) = waited.map_err(|_| Refusal::Deadline)? else {
                return Err(ProtocolError::StreamEnded { within_frame: false });
            };
            self.session.record_use();
            let turn = self.host.acquire_compute_permit().await;
            let session = self.session.clone();
            let pushing = tokio::task::spawn_blocking(move || {
                let done = push_ciphertexts(&session, preparing, &block);
                drop(turn);
                done
            });
            let (back, count) = pushing.await.map_err(|_| Refusal::Internal)??;
            (preparing, pushed) = (back, pushed + count);
            if pushed < columns {
                self.send_credit(1).await?;
            }
        }
        let turn = self.host.acquire_compute_permit().await;
        let (session, group) = (self.session.clone(), self.group);
        let finishing = tokio::task::spawn_blocking(move || {
            let answers = compute_answers(&session, group, preparing);
            drop(turn);
            answers
        });
        let answers = finishing.await.map_err(|_| Refusal::Internal)??;
        if self.session.tally.is_closed() {
            return Err(Refusal::NoSession.into());
        }
        self.host.note_prepared_batch(&self.session, self.group, self.batch);
        self.send_answers(&answers).await
    }

    /// Releases the queue and the permit before the last frame is sent, because its receiver may start
    /// the next preparation at once.
    fn release_permit(&mut self) {
        self.blocks.close();
        self.room = None;
    }

    async fn send_credit(&self, blocks: u16) -> Result<(), ProtocolError> {
        let credit = BlockCredit { blocks, batch: self.batch };
        let mut writer = self.writer.lock().await;
        writer.send(FrameKind::Credit, self.id, |out| credit.encode(out)).await
    }

    /// Sends the ciphertexts of all rows in several frames, between which other tasks can write.
    async fn send_answers(&mut self, answers: &[Vec<u8>]) -> Result<(), ProtocolError> {
        let at_once = (ANSWER_BYTES / answers.first().map_or(1, Vec::len).max(1)).max(1);
        for (index, part) in answers.chunks(at_once).enumerate() {
            if (index + 1) * at_once >= answers.len() {
                self.release_permit();
            }
            let ciphertexts = part.concat();
            let first = (index * at_once) as u32;
            let count = part.len() as u16;
            let prepared = PreparedRows { first, count, ciphertexts: &ciphertexts };
            let mut writer = self.writer.lock().await;
            writer.send(FrameKind::Prepared, self.id, |out| prepared.encode(out)).await?;
        }
        Ok(())
    }
}

fn push_ciphertexts(
    session: &HostSession,
    preparing: HostPreparation,
    block: &[u8],
) -> Result<(HostPreparation, usize), Refusal> {
    let length = SeededCiphertext::wire_bytes(&session.context);
    if !block.len().is_multiple_of(length) {
        return Err(Refusal::Malformed);
    }
    let parts = block.chunks_exact(length);
    let parsed = parts.map(|bytes| SeededCiphertext::from_bytes(&session.context, bytes));
    let ciphertexts = parsed.collect::<Result<Vec<_>, _>>().map_err(|_| Refusal::Malformed)?;
    let pushed = preparing.push(&ciphertexts, &mut StepMeter::default());
    Ok((pushed.map_err(|_| Refusal::Malformed)?, ciphertexts.len()))
}

/// Computes the answers of all rows and makes the counters of the batch usable: the key holder may
/// use them as soon as it has the last answer.
fn compute_answers(
    session: &HostSession,
    group: usize,
    preparing: HostPreparation,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let input = session.adapter.groups()[group].masked_weights().ok_or(Refusal::Internal)?;
    let mut rng = Rng::from_os().map_err(|_| Refusal::Internal)?;
    let meter = &mut StepMeter::default();
    let mut answering = preparing.finish(input, meter).map_err(|_| Refusal::Malformed)?;
    let mut answers = Vec::new();
    while let Some(row) =
        answering.next_row(&session.public_key, &mut rng, meter).map_err(|_| Refusal::Internal)?
    {
        answers.push(row.to_bytes(&session.context));
    }
    let mut sequence = session.sequences.lock(group).ok_or(Refusal::Internal)?;
    answering.commit(&mut sequence).map_err(|_| Refusal::Internal)?;
    Ok(answers)
}
