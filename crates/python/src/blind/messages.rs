//! The messages of the blind protocol as objects of Python, which stand for whole frames.

use confide_lora::{
    LayerInput,
    protocol::{
        self, ConnectionSide, Frame, FrameBuffer, FrameKind, ProtocolError, Refusal, Scheme,
        VERSION,
    },
};
use pyo3::{prelude::*, types::PyBytes};

use super::{
    errors::{find_refusal, make_refusal, protocol_error, value_error},
    pack::is_packed,
    terms::{parse_protect, protect_name},
};

/// Opens a session under the masked scheme or, with `scheme` `direct`, under the direct one.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct Hello {
    adapter: String,
    scheme: String,
    parameters: String,
    protect: Option<String>,
    client: [u8; 32],
    credential: Py<PyBytes>,
    public_key: Py<PyBytes>,
}

/// Joins a session. The token lets its bearer use up the session's masks.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct Attach {
    client: [u8; 32],
    epoch: [u8; 16],
    token: [u8; 32],
}

/// Answers an `Attach`: the number of the session's connections.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct AttachAnswer {
    connections: u16,
}

/// Answers a `Hello`; as many `GroupTerms` follow as there are groups.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct Welcome {
    epoch: [u8; 16],
    token: [u8; 32],
    simulated: bool,
    trusted: bool,
    can_be_learned: bool,
    protect: String,
    groups: u16,
}

/// The budget of one input, `None` without one, and its encoded terms.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct GroupTerms {
    budget: Option<u64>,
    budget_left: Option<u64>,
    terms: Py<PyBytes>,
}

/// Begins a batch of masks for one input.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct PrepareRequest {
    layer: u32,
    source: u8,
}

/// Allows further blocks of a batch.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct BlockCredit {
    blocks: u16,
    batch: u64,
}

/// Consecutive ciphertexts of a batch, all of one length.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct CiphertextBlock {
    first: u32,
    count: u16,
    ciphertexts: Py<PyBytes>,
}

/// Consecutive ciphertexts of the answer to a batch, all of one length.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct PreparedRows {
    first: u32,
    count: u16,
    ciphertexts: Py<PyBytes>,
}

/// Masked vectors, each packed by itself.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct MaskedRequest {
    layer: u32,
    source: u8,
    counter: u64,
    vectors: u16,
    packed: Py<PyBytes>,
}

/// Products, each packed by itself, and the answers left of the budget.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct MaskedAnswer {
    budget_left: Option<u64>,
    vectors: u16,
    packed: Py<PyBytes>,
}

/// One vector as ciphertexts: the direct scheme, which is not offered in Python.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct CiphertextRequest {
    layer: u32,
    source: u8,
}

/// Answers a `CiphertextRequest`.
#[pyclass(frozen, get_all, module = "confide._native")]
pub(crate) struct CiphertextAnswer {
    budget_left: Option<u64>,
}

/// Ends a connection and, with `session`, its session.
#[pyclass(frozen, get_all, new = "from_fields", module = "confide._native")]
pub(crate) struct Goodbye {
    session: bool,
}

/// The last frame of a connection.
#[pyclass(frozen, new = "from_fields", module = "confide._native")]
pub(crate) struct Farewell {}

#[pymethods]
impl Hello {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        // A longer text would be cut where its length is written.
        for name in [&self.adapter, &self.parameters] {
            if !is_valid_name(name) {
                let text = format!("name: wanted 1 to 128 visible ASCII characters, got {name:?}");
                return Err(value_error(text));
            }
        }
        let credential = self.credential.as_bytes(py);
        if credential.len() > protocol::Hello::CREDENTIAL_MAX {
            let got = credential.len();
            return Err(value_error(format!("credential: wanted at most 64 bytes, got {got}")));
        }
        let protect = self.protect.as_deref().map(parse_protect).transpose()?;
        let message = protocol::Hello {
            version: VERSION,
            adapter: &self.adapter,
            scheme: parse_scheme(&self.scheme)?,
            parameters: &self.parameters,
            protect,
            client: self.client,
            credential,
            public_key: self.public_key.as_bytes(py),
        };
        build_frame(py, FrameKind::Hello, request, |out| message.encode(out))
    }
}

#[pymethods]
impl Attach {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let Self { client, epoch, token } = *self;
        let message = protocol::Attach { client, epoch, token };
        build_frame(py, FrameKind::Attach, request, |out| message.encode(out))
    }
}

#[pymethods]
impl AttachAnswer {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let message = protocol::AttachAnswer { connections: self.connections };
        build_frame(py, FrameKind::Attached, request, |out| message.encode(out))
    }
}

#[pymethods]
impl Welcome {
    /// The greatest number of inputs of an adapter.
    #[classattr]
    const INPUTS_MAX: u16 = protocol::Welcome::INPUTS_MAX;

    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let message = protocol::Welcome {
            version: VERSION,
            epoch: self.epoch,
            token: self.token,
            simulated: self.simulated,
            trusted: self.trusted,
            can_be_learned: self.can_be_learned,
            protect: parse_protect(&self.protect)?,
            groups: self.groups,
        };
        build_frame(py, FrameKind::Welcome, request, |out| message.encode(out))
    }
}

#[pymethods]
impl GroupTerms {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let terms = self.terms.as_bytes(py);
        let Self { budget, budget_left, .. } = *self;
        let message = protocol::GroupTerms { budget, budget_left, terms };
        build_frame(py, FrameKind::Terms, request, |out| message.encode(out))
    }
}

#[pymethods]
impl PrepareRequest {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let message =
            protocol::PrepareRequest { layer: self.layer, input: parse_input(self.source)? };
        build_frame(py, FrameKind::Prepare, request, |out| message.encode(out))
    }
}

#[pymethods]
impl BlockCredit {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let message = protocol::BlockCredit { blocks: self.blocks, batch: self.batch };
        build_frame(py, FrameKind::Credit, request, |out| message.encode(out))
    }
}

#[pymethods]
impl CiphertextBlock {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let ciphertexts = self.ciphertexts.as_bytes(py);
        let Self { first, count, .. } = *self;
        let message = protocol::CiphertextBlock { first, count, ciphertexts };
        build_frame(py, FrameKind::Block, request, |out| message.encode(out))
    }
}

#[pymethods]
impl PreparedRows {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let ciphertexts = self.ciphertexts.as_bytes(py);
        let Self { first, count, .. } = *self;
        let message = protocol::PreparedRows { first, count, ciphertexts };
        build_frame(py, FrameKind::Prepared, request, |out| message.encode(out))
    }
}

#[pymethods]
impl MaskedRequest {
    /// The greatest number of vectors in one message.
    #[classattr]
    const VECTORS_MAX: u16 = protocol::MaskedRequest::VECTORS_MAX;

    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let packed = self.packed.as_bytes(py);
        let Self { layer, counter, vectors, .. } = *self;
        let input = parse_input(self.source)?;
        let message = protocol::MaskedRequest { layer, input, counter, vectors, packed };
        build_frame(py, FrameKind::Apply, request, |out| message.encode(out))
    }
}

#[pymethods]
impl MaskedAnswer {
    /// Whether the products are `vectors` vectors of `count` values of `bits` bits, and no other bit is set.
    fn is_packed(&self, py: Python<'_>, bits: u32, count: usize) -> bool {
        is_packed(self.packed.as_bytes(py), bits, self.vectors.into(), count)
    }

    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let packed = self.packed.as_bytes(py);
        let Self { budget_left, vectors, .. } = *self;
        let message = protocol::MaskedAnswer { budget_left, vectors, packed };
        build_frame(py, FrameKind::Products, request, |out| message.encode(out))
    }
}

#[pymethods]
impl Goodbye {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        let message = protocol::Goodbye { session: self.session };
        build_frame(py, FrameKind::Goodbye, request, |out| message.encode(out))
    }
}

#[pymethods]
impl Farewell {
    /// Encodes the message as a frame of a request.
    fn to_frame<'py>(&self, py: Python<'py>, request: u32) -> PyResult<Bound<'py, PyBytes>> {
        build_frame(py, FrameKind::Farewell, request, |_| ())
    }
}

/// Encodes a refusal as the frame that answers a request; `detail` is that of docs/blind-protocol.md.
#[pyfunction]
pub(crate) fn encode_refusal<'py>(
    py: Python<'py>,
    request: u32,
    name: &str,
    detail: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let refusal = find_refusal(name, detail)?;
    build_frame(py, FrameKind::Error, request, |out| refusal.encode(out))
}

/// Decodes the message of a frame. A refusal becomes an object of its exception's class.
pub(crate) fn decode_message<'py>(
    py: Python<'py>,
    frame: &Frame<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    match frame.kind.receiver() {
        ConnectionSide::Host => decode_request(py, frame),
        ConnectionSide::Holder => decode_answer(py, frame),
    }
}

/// Decodes a message of the key holder.
fn decode_request<'py>(py: Python<'py>, frame: &Frame<'_>) -> PyResult<Bound<'py, PyAny>> {
    let payload = frame.payload;
    let to_exception = |error: ProtocolError| protocol_error(py, &error);
    let message = match frame.kind {
        FrameKind::Hello => {
            let read = protocol::Hello::decode(payload).map_err(to_exception)?;
            let message = Hello {
                adapter: read.adapter.to_owned(),
                scheme: read.scheme.name().to_owned(),
                parameters: read.parameters.to_owned(),
                protect: read.protect.map(protect_name),
                client: read.client,
                credential: copy_bytes(py, read.credential),
                public_key: copy_bytes(py, read.public_key),
            };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Attach => {
            let protocol::Attach { client, epoch, token } =
                protocol::Attach::decode(payload).map_err(to_exception)?;
            Bound::new(py, Attach { client, epoch, token })?.into_any()
        }
        FrameKind::Prepare => {
            let read = protocol::PrepareRequest::decode(payload).map_err(to_exception)?;
            let message = PrepareRequest { layer: read.layer, source: read.input as u8 };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Block => {
            let protocol::CiphertextBlock { first, count, ciphertexts } =
                protocol::CiphertextBlock::decode(payload).map_err(to_exception)?;
            let message =
                CiphertextBlock { first, count, ciphertexts: copy_bytes(py, ciphertexts) };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Apply => {
            let protocol::MaskedRequest { layer, input, counter, vectors, packed } =
                protocol::MaskedRequest::decode(payload).map_err(to_exception)?;
            let (source, packed) = (input as u8, copy_bytes(py, packed));
            Bound::new(py, MaskedRequest { layer, source, counter, vectors, packed })?.into_any()
        }
        FrameKind::Direct => {
            let read = protocol::CiphertextRequest::decode(payload).map_err(to_exception)?;
            let message = CiphertextRequest { layer: read.layer, source: read.input as u8 };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Goodbye => {
            let read = protocol::Goodbye::decode(payload).map_err(to_exception)?;
            Bound::new(py, Goodbye { session: read.session })?.into_any()
        }
        kind => return Err(kind_error(kind)),
    };
    Ok(message)
}

/// Decodes a message of the host.
fn decode_answer<'py>(py: Python<'py>, frame: &Frame<'_>) -> PyResult<Bound<'py, PyAny>> {
    let payload = frame.payload;
    let to_exception = |error: ProtocolError| protocol_error(py, &error);
    let message = match frame.kind {
        FrameKind::Attached => {
            let read = protocol::AttachAnswer::decode(payload).map_err(to_exception)?;
            Bound::new(py, AttachAnswer { connections: read.connections })?.into_any()
        }
        FrameKind::Welcome => {
            let read = protocol::Welcome::decode(payload).map_err(to_exception)?;
            let message = Welcome {
                epoch: read.epoch,
                token: read.token,
                simulated: read.simulated,
                trusted: read.trusted,
                can_be_learned: read.can_be_learned,
                protect: protect_name(read.protect),
                groups: read.groups,
            };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Terms => {
            let protocol::GroupTerms { budget, budget_left, terms } =
                protocol::GroupTerms::decode(payload).map_err(to_exception)?;
            let message = GroupTerms { budget, budget_left, terms: copy_bytes(py, terms) };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Credit => {
            let protocol::BlockCredit { blocks, batch } =
                protocol::BlockCredit::decode(payload).map_err(to_exception)?;
            Bound::new(py, BlockCredit { blocks, batch })?.into_any()
        }
        FrameKind::Prepared => {
            let protocol::PreparedRows { first, count, ciphertexts } =
                protocol::PreparedRows::decode(payload).map_err(to_exception)?;
            let message = PreparedRows { first, count, ciphertexts: copy_bytes(py, ciphertexts) };
            Bound::new(py, message)?.into_any()
        }
        FrameKind::Products => {
            let protocol::MaskedAnswer { budget_left, vectors, packed } =
                protocol::MaskedAnswer::decode(payload).map_err(to_exception)?;
            let packed = copy_bytes(py, packed);
            Bound::new(py, MaskedAnswer { budget_left, vectors, packed })?.into_any()
        }
        FrameKind::CiphertextAnswer => {
            let read = protocol::CiphertextAnswer::decode(payload).map_err(to_exception)?;
            Bound::new(py, CiphertextAnswer { budget_left: read.budget_left })?.into_any()
        }
        FrameKind::Farewell => Bound::new(py, Farewell {})?.into_any(),
        FrameKind::Error => make_refusal(py, Refusal::decode(payload).map_err(to_exception)?)?,
        kind => return Err(kind_error(kind)),
    };
    Ok(message)
}

fn kind_error(kind: FrameKind) -> PyErr {
    value_error(format!("frame of kind {kind:?}: no message is known"))
}

fn copy_bytes(py: Python<'_>, bytes: &[u8]) -> Py<PyBytes> {
    PyBytes::new(py, bytes).unbind()
}

/// Builds the frame of a message that `fill` encodes.
fn build_frame(
    py: Python<'_>,
    kind: FrameKind,
    request: u32,
    fill: impl FnOnce(&mut Vec<u8>),
) -> PyResult<Bound<'_, PyBytes>> {
    let mut buffer = FrameBuffer::default();
    let mut payload = 0;
    let frame = buffer.build_frame(kind, request, |out| {
        let header = out.len();
        fill(out);
        payload = out.len() - header;
    });
    let wanted = kind.payload_max();
    if payload > wanted {
        let error = ProtocolError::Length { kind, wanted, got: payload };
        return Err(protocol_error(py, &error));
    }
    Ok(PyBytes::new(py, frame))
}

/// The input of a number on the wire.
pub(crate) fn parse_input(source: u8) -> PyResult<LayerInput> {
    let input = LayerInput::ALL.get(usize::from(source)).copied();
    input.ok_or_else(|| value_error(format!("input: wanted 0 to 4, got {source}")))
}

/// Whether a text can be sent as a name: 1 to 128 visible ASCII characters.
#[pyfunction]
pub(crate) fn is_valid_name(text: &str) -> bool {
    protocol::is_valid_name(text)
}

fn parse_scheme(name: &str) -> PyResult<Scheme> {
    let schemes = [Scheme::Masked, Scheme::Direct];
    let scheme = schemes.into_iter().find(|scheme| scheme.name() == name);
    scheme.ok_or_else(|| value_error(format!("scheme: wanted masked or direct, got {name:?}")))
}
