//! A key holder that sends arbitrary frames.

use std::time::Duration;

use confide_lora::{
    HostEpoch, InputTerms, LayerInput, StepMeter,
    masked::{BatchState, HolderBatch, MaskRequest},
    protocol::{
        Attach, BlockCredit, CiphertextBlock, ConnectionSide, FrameBuffer, FrameKind, FrameReader,
        GroupTerms, Hello, MaskedRequest, PrepareRequest, PreparedRows, ProtocolError, Refusal,
        Scheme, VERSION, Welcome, decode_terms, pack, write_frame,
    },
};
use confide_rlwe::{Context, Rng, SecretKey, SmallCiphertext};
use tokio::{io::DuplexStream, runtime::Runtime};

const SOON: Duration = Duration::from_secs(60);

pub(crate) struct RawHolder<'r> {
    runtime: &'r Runtime,
    reader: FrameReader<DuplexStream>,
    out: FrameBuffer,
    pub(crate) secret: SecretKey,
    pub(crate) rng: Rng,
    next_id: u32,
}

/// The answer to a hello.
#[derive(Debug)]
pub(crate) struct OpenedSession {
    pub(crate) welcome: Welcome,
    pub(crate) terms: Vec<InputTerms>,
}

impl<'r> RawHolder<'r> {
    pub(crate) fn new(runtime: &'r Runtime, stream: DuplexStream) -> Self {
        let context = Context::new(&super::test_host::parameters()).unwrap();
        let mut rng = Rng::from_os().unwrap();
        let secret = SecretKey::generate(&context, &mut rng);
        let reader = FrameReader::new(stream, ConnectionSide::Holder);
        RawHolder { runtime, reader, out: FrameBuffer::default(), secret, rng, next_id: 1 }
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn send(&mut self, kind: FrameKind, id: u32, fill: impl FnOnce(&mut Vec<u8>)) {
        let frame = self.out.build_frame(kind, id, fill);
        self.runtime.block_on(write_frame(self.reader.stream_mut(), frame, SOON)).unwrap();
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.runtime.block_on(write_frame(self.reader.stream_mut(), bytes, SOON)).unwrap();
    }

    pub(crate) fn read_frame(&mut self) -> Result<(FrameKind, u32, Vec<u8>), ProtocolError> {
        let frame = self.runtime.block_on(self.reader.read_next("an answer", SOON))?;
        Ok((frame.kind, frame.id, frame.payload.to_vec()))
    }

    /// Reads the refusal in the next frame, and whether it ends the connection.
    pub(crate) fn read_refusal(&mut self) -> (Refusal, bool) {
        loop {
            let (kind, id, payload) = self.read_frame().unwrap();
            if kind == FrameKind::Error {
                return (Refusal::decode(&payload).unwrap(), id == 0);
            }
            assert_eq!(kind, FrameKind::Credit, "wanted a refusal");
        }
    }

    pub(crate) fn hello_bytes(&mut self, change: impl FnOnce(&mut Hello<'_>)) -> Vec<u8> {
        let context = self.secret.context().clone();
        let public_key = self.secret.public_key(&mut self.rng).to_bytes(&context);
        let mut client = [0; 32];
        self.rng.fill_bytes(&mut client);
        let mut hello = Hello {
            version: VERSION,
            adapter: "banking",
            scheme: Scheme::Masked,
            parameters: "toy-256-q100-flood40",
            protect: None,
            client,
            credential: b"",
            public_key: &public_key,
        };
        change(&mut hello);
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        bytes
    }

    pub(crate) fn say_hello(&mut self, change: impl FnOnce(&mut Hello<'_>)) {
        let bytes = self.hello_bytes(change);
        let id = self.id();
        self.send(FrameKind::Hello, id, |out| out.extend(bytes));
    }

    pub(crate) fn open(&mut self) -> OpenedSession {
        self.say_hello(|_| ());
        self.read_welcome()
    }

    pub(crate) fn read_welcome(&mut self) -> OpenedSession {
        let (kind, _, payload) = self.read_frame().unwrap();
        assert_eq!(kind, FrameKind::Welcome);
        let welcome = Welcome::decode(&payload).unwrap();
        let terms = (0..welcome.groups).map(|_| {
            let (kind, _, payload) = self.read_frame().unwrap();
            assert_eq!(kind, FrameKind::Terms);
            decode_terms(GroupTerms::decode(&payload).unwrap().terms).unwrap()
        });
        let terms = terms.collect();
        OpenedSession { welcome, terms }
    }

    pub(crate) fn attach(&mut self, attach: &Attach) {
        let id = self.id();
        self.send(FrameKind::Attach, id, |out| attach.encode(out));
    }

    pub(crate) fn begin(&mut self, terms: &InputTerms) -> u32 {
        let id = self.id();
        let prepare = PrepareRequest { layer: terms.layer, input: terms.input };
        self.send(FrameKind::Prepare, id, |out| prepare.encode(out));
        id
    }

    /// Prepares a whole batch, which fits the window of this small parameter set.
    pub(crate) fn prepare(&mut self, opened: &OpenedSession, group: usize) -> HolderBatch {
        let terms = &opened.terms[group];
        let id = self.begin(terms);
        let (kind, _, payload) = self.read_frame().unwrap();
        assert_eq!(kind, FrameKind::Credit);
        let credit = BlockCredit::decode(&payload).unwrap();
        let epoch = HostEpoch(opened.welcome.epoch);
        let mut rng = self.rng.fork();
        let context = self.secret.context().clone();
        let meter = &mut StepMeter::default();
        let mut blocks = Vec::new();
        let mut awaiting = {
            let mut requesting =
                MaskRequest::new(&self.secret, terms, epoch, credit.batch, &mut rng).unwrap();
            loop {
                let block = requesting.next_block(meter).unwrap();
                if block.is_empty() {
                    break requesting.finish().unwrap();
                }
                blocks.push(block);
            }
        };
        assert!(blocks.len() <= usize::from(credit.blocks), "the window is large enough");
        let mut first = 0;
        for block in blocks {
            let bytes: Vec<u8> = block.iter().flat_map(|c| c.to_bytes(&context)).collect();
            let part = CiphertextBlock { first, count: block.len() as u16, ciphertexts: &bytes };
            self.send(FrameKind::Block, id, |out| part.encode(out));
            first += block.len() as u32;
        }
        let length = SmallCiphertext::wire_bytes(&context, context.n());
        loop {
            let (kind, _, payload) = self.read_frame().unwrap();
            if kind == FrameKind::Credit {
                continue;
            }
            assert_eq!(kind, FrameKind::Prepared);
            let part = PreparedRows::decode(&payload).unwrap();
            let answers: Vec<_> = part
                .ciphertexts
                .chunks_exact(length)
                .map(|bytes| SmallCiphertext::from_bytes(&context, bytes).unwrap())
                .collect();
            awaiting = match awaiting.accept_answers(&self.secret, &answers, meter).unwrap() {
                BatchState::Pending(awaiting) => awaiting,
                BatchState::Ready(batch) => return batch,
            };
        }
    }

    pub(crate) fn apply(&mut self, terms: &InputTerms, counter: u64, vectors: u16) {
        let words = vec![5; terms.columns];
        let mut packed = Vec::new();
        (0..vectors).for_each(|_| pack(&words, terms.bits, &mut packed));
        self.apply_packed(terms.layer, terms.input, counter, vectors, &packed);
    }

    pub(crate) fn apply_packed(
        &mut self,
        layer: u32,
        input: LayerInput,
        counter: u64,
        vectors: u16,
        packed: &[u8],
    ) {
        let id = self.id();
        let apply = MaskedRequest { layer, input, counter, vectors, packed };
        self.send(FrameKind::Apply, id, |out| apply.encode(out));
    }
}
