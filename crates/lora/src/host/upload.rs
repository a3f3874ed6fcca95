//! A batch on its way in: blocks go through a bounded pool, so that preparing never starves the
//! products that tokens wait for.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, mpsc},
    time::timeout,
};

use super::{AdapterHost, connection::SharedWriter, sessions::Session};
use crate::protocol::{Block, Credit, Kind, Prepare, Prepared, ProtocolError, Refusal};

/// Blocks that a key holder may send before it hears that one was used: sending and computing
/// overlap, and a batch in waiting holds 4 MB.
pub const WINDOW: u16 = 4;

/// The next block has to come within this: a batch that has begun holds memory for its sums.
pub const BLOCK_DEADLINE: Duration = Duration::from_secs(30);

/// Bytes of one answer frame at most.
const ANSWER_BYTES: usize = 512 * 1024;

/// Where the reading task hands blocks in.
pub(crate) struct Upload {
    id: u32,
    blocks: mpsc::Sender<Vec<u8>>,
    next: u32,
    session: Arc<Session>,
    place: Place,
}

/// Which batch it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) group: usize,
    pub(crate) batch: u32,
}

/// Why a block was not taken.
pub(crate) enum UploadEnd {
    /// The batch came to an end before.
    Ended,
    /// More than was credited, or out of order.
    BeyondCredit,
}

impl Upload {
    /// Begins the batch, and the task that computes it.
    pub(crate) fn begin<S>(
        host: &Arc<AdapterHost>,
        session: &Arc<Session>,
        writer: &SharedWriter<S>,
        id: u32,
        prepare: Prepare,
    ) -> Result<Self, ProtocolError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let place = host.begin_batch(session, &prepare)?;
        let Some(room) = host.room_for_sums() else {
            session.abandon(place);
            return Err(Refusal::Busy.into());
        };
        let (sender, receiver) = mpsc::channel(WINDOW.into());
        let task = Task {
            host: host.clone(),
            session: session.clone(),
            writer: writer.clone(),
            id,
            place,
            blocks: receiver,
            _room: room,
        };
        tokio::spawn(task.run());
        Ok(Self { id, blocks: sender, next: 0, session: session.clone(), place })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn ended(&self) -> bool {
        self.blocks.is_closed()
    }

    pub(crate) fn block(&mut self, block: &Block<'_>) -> Result<(), UploadEnd> {
        if self.ended() {
            return Err(UploadEnd::Ended);
        }
        if block.first != self.next {
            return Err(UploadEnd::BeyondCredit);
        }
        self.next += u32::from(block.count);
        let mut bytes = Vec::with_capacity(block.ciphertexts.len() + 2);
        bytes.extend_from_slice(&block.count.to_le_bytes());
        bytes.extend_from_slice(block.ciphertexts);
        self.blocks.try_send(bytes).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => UploadEnd::BeyondCredit,
            mpsc::error::TrySendError::Closed(_) => UploadEnd::Ended,
        })
    }

    /// The connection ends: a batch that is not whole never will be.
    pub(crate) fn abandon(self) {
        if !self.ended() {
            self.session.abandon(self.place);
        }
    }
}

struct Task<S> {
    host: Arc<AdapterHost>,
    session: Arc<Session>,
    writer: SharedWriter<S>,
    id: u32,
    place: Place,
    blocks: mpsc::Receiver<Vec<u8>>,
    _room: OwnedSemaphorePermit,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Task<S> {
    async fn run(mut self) {
        let refusal = match self.work().await {
            Ok(()) => return,
            Err(ProtocolError::Refused(refusal)) => refusal,
            // The stream is gone, and the reading task knows it.
            Err(_) => return self.session.abandon(self.place),
        };
        self.session.abandon(self.place);
        self.host.note_refusal(&self.session, refusal);
        self.blocks.close();
        let _ = self.writer.lock().await.refuse(self.id, refusal).await;
    }

    async fn work(&mut self) -> Result<(), ProtocolError> {
        let columns = self.session.adapter.groups()[self.place.group].columns();
        let mut sums = self.host.sums(&self.session, self.place);
        self.credit(WINDOW).await?;
        let mut pushed = 0;
        while pushed < columns {
            let waited = timeout(BLOCK_DEADLINE, self.blocks.recv()).await;
            // A closed channel is a connection that ended: there is nobody to tell.
            let Some(block) = waited.map_err(|_| Refusal::Deadline)? else {
                return Err(ProtocolError::Ended { within_frame: false });
            };
            let host = self.host.clone();
            let turn = host.turn_to_prepare().await;
            let pushing = tokio::task::spawn_blocking(move || {
                let count = sums.push(&block);
                drop(turn);
                (sums, count)
            });
            let (back, count) = pushing.await.map_err(|_| Refusal::Internal)?;
            (sums, pushed) = (back, pushed + count?);
            if pushed < columns {
                self.credit(1).await?;
            }
        }
        let turn = self.host.turn_to_prepare().await;
        let finishing = tokio::task::spawn_blocking(move || {
            let answers = sums.finish();
            drop(turn);
            answers
        });
        let answers = finishing.await.map_err(|_| Refusal::Internal)??;
        // Before the last answer is out: the key holder may use a counter as soon as it has it.
        self.session.finish(self.place);
        self.host.note_prepared(&self.session, self.place);
        self.send(&answers).await?;
        self.blocks.close();
        Ok(())
    }

    async fn credit(&self, blocks: u16) -> Result<(), ProtocolError> {
        let credit = Credit { blocks };
        let mut writer = self.writer.lock().await;
        writer.send(Kind::Credit, self.id, |out| credit.encode(out)).await
    }

    /// Ciphertexts of all rows, in frames between which others get to write.
    async fn send(&self, answers: &[Vec<u8>]) -> Result<(), ProtocolError> {
        let at_once = (ANSWER_BYTES / answers.first().map_or(1, Vec::len).max(1)).max(1);
        for (index, part) in answers.chunks(at_once).enumerate() {
            let ciphertexts = part.concat();
            let first = (index * at_once) as u32;
            let prepared = Prepared { first, count: part.len() as u16, ciphertexts: &ciphertexts };
            let mut writer = self.writer.lock().await;
            writer.send(Kind::Prepared, self.id, |out| prepared.encode(out)).await?;
        }
        Ok(())
    }
}
