//! The end to which the loopback proxy forwards: an attested one, or a gateway behind a proxy that
//! terminates TLS.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Limited};

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

    /// Sends one request, whose target is a path, and reads the answer whole, up to `bytes_max` bytes.
    ///
    /// # Errors
    /// Those of [`HttpClient::request`], those of encrypted bodies, and [`ClientError::Answer`] if the
    /// answer is longer or breaks off.
    pub async fn fetch(
        &self,
        request: Request<RequestBody>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, ClientError> {
        let (head, body) = self.request(request).await?.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(ClientError::Answer)?.to_bytes();
        Ok(Response::from_parts(head, body))
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
