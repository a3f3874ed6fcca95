//! The end to which the loopback proxy forwards: an attested one, or a gateway behind a proxy that
//! terminates TLS.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::Either;

use crate::{
    connector::RequestBody,
    encrypted_client::{EncryptedAnswerBody, EncryptedClient},
    error::ClientError,
    pool::{HttpClient, WebSocketAnswer},
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
    pub(crate) async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<EncryptedAnswerBody>, ClientError> {
        match self {
            Self::Attested(client) => Ok(client.request(request).await?.response.map(Either::Left)),
            Self::Encrypted(client) => client.request(request).await,
        }
    }

    /// Opens a WebSocket, which has no body that could be encrypted.
    pub(crate) async fn open_websocket(
        &self,
        request: Request<RequestBody>,
    ) -> Result<WebSocketAnswer, ClientError> {
        match self {
            Self::Attested(client) => client.open_websocket(request).await,
            Self::Encrypted(_) => Err(ClientError::UnencryptedWebSocket),
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
