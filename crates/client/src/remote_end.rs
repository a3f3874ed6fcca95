//! One end to which the loopback proxy forwards: an attested one, or a gateway behind a proxy that
//! terminates TLS.

use std::sync::Arc;

use confide_appraiser::SharedAppraisal;
use confide_encrypted_body::BodyKeyId;
use http::{Request, Response};
use http_body_util::Either;

use crate::{
    encrypted_client::{EncryptedAnswerBody, EncryptedClient, PreparedExchange},
    error::ClientError,
    pool::{CheckedOut, ConnectionSource, HttpClient, RequestDeadlines, WebSocketAnswer},
    request_body::RequestBody,
    running_request::RunningRequest,
    shared_key::JudgedKey,
    unanswered_request::UnansweredRequest,
};

/// The end to which requests go.
#[derive(Clone)]
pub enum RemoteEnd {
    /// Every connection is attested.
    Attested(Arc<HttpClient>),
    /// Connections are not; bodies are encrypted to an attested key.
    Encrypted(Arc<EncryptedClient>),
}

impl RemoteEnd {
    /// Opens an attested connection, or finds an attested key.
    pub(crate) async fn admit(&self) -> Result<(), ClientError> {
        match self {
            Self::Attested(client) => client.open_connection().await.map(drop),
            Self::Encrypted(client) => client.find_key().await.map(drop),
        }
    }

    /// Whether a request is encrypted.
    pub(crate) fn is_sealed(&self, request: &Request<RequestBody>) -> bool {
        match self {
            Self::Attested(_) => false,
            Self::Encrypted(client) => client.is_sealed(request),
        }
    }

    /// Finds what a request needs before anything of it is sent: a place, an admitted connection, and
    /// a key if it is sealed.
    pub(crate) async fn prepare(
        &self,
        is_sealed: bool,
        deadlines: RequestDeadlines,
        running: RunningRequest,
    ) -> Result<PreparedExchange, ClientError> {
        match self {
            Self::Attested(client) => {
                let source = ConnectionSource::PooledOrNew;
                let checked_out = client.check_out(source, deadlines, Some(running)).await?;
                Ok(PreparedExchange { key: None, checked_out, connect: deadlines.connect })
            }
            Self::Encrypted(client) => client.prepare(is_sealed, deadlines, running).await,
        }
    }

    pub(crate) async fn send(
        &self,
        prepared: PreparedExchange,
        request: Request<RequestBody>,
    ) -> Result<Response<EncryptedAnswerBody>, Box<UnansweredRequest>> {
        match self {
            Self::Attested(client) => {
                let PreparedExchange { checked_out, connect, .. } = prepared;
                let answer = client.send(checked_out, request, connect).await?;
                Ok(answer.response.map(Either::Left))
            }
            Self::Encrypted(client) => client.send(prepared, request).await,
        }
    }

    /// Opens a connection for a WebSocket, which has no body that could be encrypted.
    pub(crate) async fn prepare_websocket(
        &self,
        deadlines: RequestDeadlines,
        running: RunningRequest,
    ) -> Result<CheckedOut, ClientError> {
        match self {
            Self::Attested(client) => {
                client.check_out(ConnectionSource::New, deadlines, Some(running)).await
            }
            Self::Encrypted(_) => Err(ClientError::UnencryptedWebSocket),
        }
    }

    pub(crate) async fn open_websocket(
        &self,
        checked_out: CheckedOut,
        request: Request<RequestBody>,
    ) -> Result<WebSocketAnswer, ClientError> {
        match self {
            Self::Attested(client) => client.open_websocket(checked_out, request).await,
            Self::Encrypted(_) => Err(ClientError::UnencryptedWebSocket),
        }
    }

    /// The appraisal of the newest attested connection.
    pub(crate) fn latest_appraisal(&self) -> Option<SharedAppraisal> {
        match self {
            Self::Attested(client) => client.latest_appraisal(),
            Self::Encrypted(_) => None,
        }
    }

    /// The key that was judged last, if requests are encrypted.
    pub(crate) fn latest_key(&self) -> Option<JudgedKey> {
        match self {
            Self::Attested(_) => None,
            Self::Encrypted(client) => client.latest_key(),
        }
    }

    /// Forgets a key that the gateway no longer has. Returns whether it was still in use.
    pub(crate) fn forget_key(&self, used: &Arc<JudgedKey>) -> bool {
        match self {
            Self::Attested(_) => false,
            Self::Encrypted(client) => client.forget_key(used),
        }
    }

    /// The identifier of the key of the gateway, if requests are encrypted.
    pub(crate) fn key_id(&self) -> Option<BodyKeyId> {
        match self {
            Self::Attested(_) => None,
            Self::Encrypted(client) => client.key_id(),
        }
    }
}

impl From<Arc<HttpClient>> for RemoteEnd {
    fn from(client: Arc<HttpClient>) -> Self {
        Self::Attested(client)
    }
}

impl From<Arc<EncryptedClient>> for RemoteEnd {
    fn from(client: Arc<EncryptedClient>) -> Self {
        Self::Encrypted(client)
    }
}
