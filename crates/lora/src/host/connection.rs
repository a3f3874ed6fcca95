//! One connection of a key holder, from its first frame to its last.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadHalf, split},
    sync::{Mutex, watch},
};

use super::{
    adapter_host::{AdapterHost, Peer},
    sessions::{Seat, Session},
    upload::{BlockError, Upload},
    writer::{SharedWriter, Writer},
};
use crate::protocol::{
    Apply, Attach, Attached, Block, Direct, DirectAnswer, Frame, FrameKind, FrameReader, Goodbye,
    GroupTerms, Hello, Prepare, Products, ProtocolError, Refusal, Scheme, Side, Welcome,
};

/// The time within which the first frame has to arrive.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// The time after which a connection without requests is closed; its session lives on.
pub(crate) const IDLE_DEADLINE: Duration = Duration::from_secs(600);

impl AdapterHost {
    /// Speaks the blind protocol on one connection until either side ends it.
    ///
    /// # Errors
    /// If the key holder broke off, or broke the protocol. The audit log has it.
    pub async fn serve<S>(self: &Arc<Self>, stream: S, peer: Peer) -> Result<(), ProtocolError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (read, write) = split(stream);
        let reader = FrameReader::new(read, Side::Host);
        let writer = Arc::new(Mutex::new(Writer::new(write)));
        let mut conversation = Conversation {
            host: self.clone(),
            reader,
            writer: writer.clone(),
            stopping: self.stopping(),
            upload: None,
        };
        let ended = conversation.run(peer).await;
        let refusal = match &ended {
            Ok(()) | Err(ProtocolError::Io(_) | ProtocolError::StreamEnded { .. }) => return ended,
            Err(ProtocolError::Refused(refusal)) => *refusal,
            Err(ProtocolError::Deadline { .. }) => Refusal::Deadline,
            Err(_) => Refusal::Malformed,
        };
        // The id 0 belongs to no request: nothing comes after it.
        let _ = writer.lock().await.refuse(0, refusal).await;
        ended
    }
}

struct Conversation<S> {
    host: Arc<AdapterHost>,
    reader: FrameReader<ReadHalf<S>>,
    writer: SharedWriter<S>,
    stopping: watch::Receiver<bool>,
    upload: Option<Upload>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Conversation<S> {
    async fn run(&mut self, peer: Peer) -> Result<(), ProtocolError> {
        let seat = match self.greet(peer).await {
            Ok(seat) => seat,
            Err(error) => {
                self.host.refused_before_hello(&error);
                return Err(error);
            }
        };
        let ended = self.requests(&seat.0).await;
        // Dropping it ends the task that computes: an incomplete batch will never be completed.
        self.upload = None;
        if let Err(error) = &ended {
            self.host.note_end(&seat.0, error);
        }
        // Release the seat before the last frame: its reader may open the next connection at once.
        drop(seat);
        let goodbye = ended?;
        self.writer.lock().await.send(FrameKind::Farewell, goodbye, |_| ()).await
    }

    /// Reads the first frame, which opens a session or joins one.
    async fn greet(&mut self, peer: Peer) -> Result<Seat, ProtocolError> {
        let frame = tokio::select! {
            biased;
            _ = turned_true(&mut self.stopping) => return Err(Refusal::Stopping.into()),
            frame = self.reader.next("hello", HELLO_DEADLINE) => frame?,
        };
        let id = frame.id;
        match frame.kind {
            FrameKind::Hello => {
                let hello = Hello::decode(frame.payload)?;
                let (seat, welcome) = self.host.welcome(&hello, peer)?;
                send_welcome(&self.host, &self.writer, id, &seat.0, &welcome).await?;
                Ok(seat)
            }
            FrameKind::Attach => {
                let attach = Attach::decode(frame.payload)?;
                let (seat, connections) = self.host.attach(&attach)?;
                let attached = Attached { connections };
                let mut writer = self.writer.lock().await;
                writer.send(FrameKind::Attached, id, |out| attached.encode(out)).await?;
                Ok(seat)
            }
            got => Err(ProtocolError::Unexpected { wanted: "hello or attach", got }),
        }
    }

    /// Answers requests until a goodbye, and returns its id.
    async fn requests(&mut self, session: &Arc<Session>) -> Result<u32, ProtocolError> {
        let mut evicted = session.eviction();
        loop {
            let frame = tokio::select! {
                biased;
                _ = turned_true(&mut self.stopping) => return Err(Refusal::Stopping.into()),
                _ = turned_true(&mut evicted) => return Err(Refusal::NoSession.into()),
                frame = self.reader.next("a request", IDLE_DEADLINE) => frame?,
            };
            let Frame { kind, id, payload } = frame;
            if id == 0 {
                return Err(Refusal::Malformed.into());
            }
            let done = match kind {
                FrameKind::Apply => {
                    let apply = Apply::decode(payload)?;
                    answer_apply(&self.host, session, &self.writer, id, &apply).await
                }
                FrameKind::Direct => {
                    let direct = Direct::decode(payload)?;
                    answer_direct(&self.host, session, &self.writer, id, &direct).await
                }
                FrameKind::Prepare => {
                    let prepare = Prepare::decode(payload)?;
                    begin_upload(&self.host, session, &self.writer, &mut self.upload, id, prepare)
                        .await
                }
                FrameKind::Block => {
                    let block = Block::decode(payload)?;
                    take_block(&mut self.upload, id, &block).await
                }
                FrameKind::Goodbye => {
                    let goodbye = Goodbye::decode(payload)?;
                    if goodbye.session {
                        self.host.end_session(session);
                    }
                    return Ok(id);
                }
                got => return Err(ProtocolError::Unexpected { wanted: "a request", got }),
            };
            match done {
                Ok(()) => {}
                Err(ProtocolError::Refused(refusal)) if goes_on(refusal) => {
                    self.host.note_refusal(session, refusal);
                    self.writer.lock().await.refuse(id, refusal).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

async fn send_welcome<S: AsyncRead + AsyncWrite>(
    host: &AdapterHost,
    writer: &SharedWriter<S>,
    id: u32,
    session: &Session,
    welcome: &Welcome,
) -> Result<(), ProtocolError> {
    let mut writer = writer.lock().await;
    writer.send(FrameKind::Welcome, id, |out| welcome.encode(out)).await?;
    for (index, group) in session.adapter.groups().iter().enumerate() {
        let state = host.budget_state(session, index);
        let budget = session.allowance.limit(group.columns());
        let terms = group.terms_bytes(session.scheme).ok_or(Refusal::NotOffered)?;
        let terms = GroupTerms { budget, budget_left: state.left, terms };
        writer.send(FrameKind::Terms, id, |out| terms.encode(out)).await?;
    }
    Ok(())
}

/// Returns whether a connection goes on after this refusal.
fn goes_on(refusal: Refusal) -> bool {
    !matches!(refusal, Refusal::Malformed | Refusal::Stopping | Refusal::NoSession)
}

async fn turned_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

async fn answer_apply<S: AsyncRead + AsyncWrite>(
    host: &Arc<AdapterHost>,
    session: &Arc<Session>,
    writer: &SharedWriter<S>,
    id: u32,
    apply: &Apply<'_>,
) -> Result<(), ProtocolError> {
    let (packed, budget_left) = host.apply(session, apply).await?;
    let products = Products { budget_left, vectors: apply.vectors, packed: &packed };
    writer.lock().await.send(FrameKind::Products, id, |out| products.encode(out)).await
}

async fn answer_direct<S: AsyncRead + AsyncWrite>(
    host: &Arc<AdapterHost>,
    session: &Arc<Session>,
    writer: &SharedWriter<S>,
    id: u32,
    direct: &Direct<'_>,
) -> Result<(), ProtocolError> {
    if session.scheme != Scheme::Direct {
        return Err(Refusal::NotOffered.into());
    }
    let (ciphertexts, budget_left) = host.answer_direct(session, direct).await?;
    let answer = DirectAnswer { budget_left, ciphertexts: &ciphertexts };
    writer.lock().await.send(FrameKind::DirectAnswer, id, |out| answer.encode(out)).await
}

async fn begin_upload<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    host: &Arc<AdapterHost>,
    session: &Arc<Session>,
    writer: &SharedWriter<S>,
    upload: &mut Option<Upload>,
    id: u32,
    prepare: Prepare,
) -> Result<(), ProtocolError> {
    if upload.as_ref().is_some_and(|upload| !upload.has_ended()) {
        return Err(Refusal::Busy.into());
    }
    if session.scheme != Scheme::Masked {
        return Err(Refusal::NotOffered.into());
    }
    *upload = Some(Upload::begin(host, session, writer, id, prepare)?);
    Ok(())
}

async fn take_block(
    upload: &mut Option<Upload>,
    id: u32,
    block: &Block<'_>,
) -> Result<(), ProtocolError> {
    let Some(running) = upload.as_mut().filter(|upload| upload.id() == id) else {
        return Err(Refusal::Malformed.into());
    };
    match running.block(block) {
        Ok(()) => Ok(()),
        // The batch was refused while these blocks were on their way.
        Err(BlockError::BatchEnded) => Ok(()),
        Err(BlockError::BeyondCredit) => Err(Refusal::Malformed.into()),
    }
}
