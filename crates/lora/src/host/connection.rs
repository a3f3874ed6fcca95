//! A connection of a key holder, from its first frame to its last.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadHalf, split},
    sync::{Mutex, watch},
};

use super::{
    adapter_host::{AdapterHost, ChannelPeer},
    sessions::{HostSession, SessionConnection},
    upload::{BatchUpload, BlockError},
    writer::{FrameWriter, SharedWriter},
};
use crate::protocol::{
    Attach, AttachAnswer, CiphertextAnswer, CiphertextBlock, CiphertextRequest, ConnectionSide,
    Frame, FrameKind, FrameReader, Goodbye, GroupTerms, Hello, MaskedAnswer, MaskedRequest,
    PrepareRequest, ProtocolError, Refusal, Scheme, Welcome,
};

/// The time limit for the first frame.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// The time after which a connection without requests is closed; its session stays open.
pub(crate) const IDLE_DEADLINE: Duration = Duration::from_secs(600);

impl AdapterHost {
    /// Runs the blind protocol on one connection until either side ends it.
    ///
    /// # Errors
    /// If the key holder disconnected early or violated the protocol. The audit log records it.
    pub async fn serve<S>(
        self: &Arc<Self>,
        stream: S,
        peer: ChannelPeer,
    ) -> Result<(), ProtocolError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (read, write) = split(stream);
        let reader = FrameReader::new(read, ConnectionSide::Host);
        let writer = Arc::new(Mutex::new(FrameWriter::new(write)));
        let mut conversation = HolderConversation {
            host: self.clone(),
            reader,
            writer: writer.clone(),
            stopping: self.stop_signal(),
            upload: None,
        };
        let ended = conversation.run(peer).await;
        let refusal = match &ended {
            Ok(()) | Err(ProtocolError::Io(_) | ProtocolError::StreamEnded { .. }) => return ended,
            Err(ProtocolError::Refused(refusal)) => *refusal,
            Err(ProtocolError::Deadline { .. }) => Refusal::Deadline,
            Err(_) => Refusal::Malformed,
        };
        // A refusal with id 0 belongs to no request and is the last frame.
        let _ = writer.lock().await.send_refusal(0, refusal).await;
        ended
    }
}

struct HolderConversation<S> {
    host: Arc<AdapterHost>,
    reader: FrameReader<ReadHalf<S>>,
    writer: SharedWriter<S>,
    stopping: watch::Receiver<bool>,
    upload: Option<BatchUpload>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> HolderConversation<S> {
    async fn run(&mut self, peer: ChannelPeer) -> Result<(), ProtocolError> {
        let seat = match self.answer_first_frame(peer).await {
            Ok(seat) => seat,
            Err(error) => {
                self.host.note_refusal_before_hello(&error);
                return Err(error);
            }
        };
        let ended = self.answer_requests(&seat.0).await;
        // This ends the computing task, because an incomplete batch cannot be completed any more.
        self.upload = None;
        if let Err(error) = &ended {
            self.host.note_connection_error(&seat.0, error);
        }
        // Release the connection before the last frame: the receiver may open the next one at once.
        drop(seat);
        let goodbye = ended?;
        self.writer.lock().await.send(FrameKind::Farewell, goodbye, |_| ()).await
    }

    /// Answers the first frame, which opens or joins a session.
    async fn answer_first_frame(
        &mut self,
        peer: ChannelPeer,
    ) -> Result<SessionConnection, ProtocolError> {
        let frame = tokio::select! {
            biased;
            _ = wait_until_true(&mut self.stopping) => return Err(Refusal::Stopping.into()),
            frame = self.reader.read_next("hello", HELLO_DEADLINE) => frame?,
        };
        let id = frame.id;
        match frame.kind {
            FrameKind::Hello => {
                let hello = Hello::decode(frame.payload)?;
                let (seat, welcome) = self.host.open_session(&hello, peer)?;
                send_welcome(&self.host, &self.writer, id, &seat.0, &welcome).await?;
                Ok(seat)
            }
            FrameKind::Attach => {
                let attach = Attach::decode(frame.payload)?;
                let (seat, connections) = self.host.attach(&attach)?;
                let attached = AttachAnswer { connections };
                let mut writer = self.writer.lock().await;
                writer.send(FrameKind::Attached, id, |out| attached.encode(out)).await?;
                Ok(seat)
            }
            got => Err(ProtocolError::Unexpected { wanted: "hello or attach", got }),
        }
    }

    /// Answers requests until a goodbye, and returns the id of the goodbye.
    async fn answer_requests(&mut self, session: &Arc<HostSession>) -> Result<u32, ProtocolError> {
        let mut ended = session.end_signal();
        loop {
            let frame = tokio::select! {
                biased;
                _ = wait_until_true(&mut self.stopping) => return Err(Refusal::Stopping.into()),
                _ = wait_until_true(&mut ended) => return Err(Refusal::NoSession.into()),
                frame = self.reader.read_next("a request", IDLE_DEADLINE) => frame?,
            };
            let Frame { kind, id, payload } = frame;
            if id == 0 {
                return Err(Refusal::Malformed.into());
            }
            let done = match kind {
                FrameKind::Apply => {
                    let apply = MaskedRequest::decode(payload)?;
                    answer_masked_frame(&self.host, session, &self.writer, id, &apply).await
                }
                FrameKind::Direct => {
                    let direct = CiphertextRequest::decode(payload)?;
                    answer_ciphertext_frame(&self.host, session, &self.writer, id, &direct).await
                }
                FrameKind::Prepare => {
                    let prepare = PrepareRequest::decode(payload)?;
                    begin_batch_upload(
                        &self.host,
                        session,
                        &self.writer,
                        &mut self.upload,
                        id,
                        prepare,
                    )
                    .await
                }
                FrameKind::Block => {
                    let block = CiphertextBlock::decode(payload)?;
                    push_upload_block(&mut self.upload, id, &block).await
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
                Err(ProtocolError::Refused(refusal)) if keeps_connection(refusal) => {
                    self.host.note_refusal(session, refusal);
                    self.writer.lock().await.send_refusal(id, refusal).await?;
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
    session: &HostSession,
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

/// Returns whether a connection stays open after this refusal.
fn keeps_connection(refusal: Refusal) -> bool {
    !matches!(refusal, Refusal::Malformed | Refusal::Stopping | Refusal::NoSession)
}

async fn wait_until_true(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

async fn answer_masked_frame<S: AsyncRead + AsyncWrite>(
    host: &Arc<AdapterHost>,
    session: &Arc<HostSession>,
    writer: &SharedWriter<S>,
    id: u32,
    apply: &MaskedRequest<'_>,
) -> Result<(), ProtocolError> {
    let (packed, budget_left) = host.answer_masked_request(session, apply).await?;
    let products = MaskedAnswer { budget_left, vectors: apply.vectors, packed: &packed };
    writer.lock().await.send(FrameKind::Products, id, |out| products.encode(out)).await
}

async fn answer_ciphertext_frame<S: AsyncRead + AsyncWrite>(
    host: &Arc<AdapterHost>,
    session: &Arc<HostSession>,
    writer: &SharedWriter<S>,
    id: u32,
    direct: &CiphertextRequest<'_>,
) -> Result<(), ProtocolError> {
    if session.scheme != Scheme::Direct {
        return Err(Refusal::NotOffered.into());
    }
    let (ciphertexts, budget_left) = host.answer_ciphertext_request(session, direct).await?;
    let answer = CiphertextAnswer { budget_left, ciphertexts: &ciphertexts };
    writer.lock().await.send(FrameKind::CiphertextAnswer, id, |out| answer.encode(out)).await
}

async fn begin_batch_upload<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    host: &Arc<AdapterHost>,
    session: &Arc<HostSession>,
    writer: &SharedWriter<S>,
    upload: &mut Option<BatchUpload>,
    id: u32,
    prepare: PrepareRequest,
) -> Result<(), ProtocolError> {
    if upload.as_ref().is_some_and(|upload| !upload.has_ended()) {
        return Err(Refusal::Busy.into());
    }
    if session.scheme != Scheme::Masked {
        return Err(Refusal::NotOffered.into());
    }
    *upload = Some(BatchUpload::begin(host, session, writer, id, prepare)?);
    Ok(())
}

async fn push_upload_block(
    upload: &mut Option<BatchUpload>,
    id: u32,
    block: &CiphertextBlock<'_>,
) -> Result<(), ProtocolError> {
    let Some(running) = upload.as_mut().filter(|upload| upload.id() == id) else {
        return Err(Refusal::Malformed.into());
    };
    match running.push_block(block) {
        Ok(()) => Ok(()),
        // The batch was refused before these blocks arrived.
        Err(BlockError::BatchEnded) => Ok(()),
        Err(BlockError::BeyondCredit) => Err(Refusal::Malformed.into()),
    }
}
