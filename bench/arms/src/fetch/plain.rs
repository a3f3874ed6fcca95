//! A plain fetch: one kept TLS session with the server, its certificate pinned.

use std::path::Path;

use bytes::Bytes;
use confide_arm_line::Outcome;
use confide_channel::{Binding, ClientOptions, PlainClient};
use confide_client::error_chain;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::answer::{DEADLINE, FetchedAnswer};
use crate::{clock::unix_now, trust::read_root};

pub(super) struct PlainFetcher {
    host: String,
    sender: SendRequest<Empty<Bytes>>,
}

impl PlainFetcher {
    pub(super) async fn open(host: &str, root: &Path) -> Outcome<Self> {
        let options = ClientOptions { binding: Binding::None, deadline: DEADLINE };
        let client = PlainClient::new(options, &read_root(root)?, unix_now)
            .map_err(|error| error_chain(&error))?;
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let tls = client.connect(name, stream).await.map_err(|error| error_chain(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(tls.stream))
            .await
            .map_err(|error| error_chain(&error))?;
        tokio::spawn(connection);
        Ok(Self { host: host.into(), sender })
    }

    pub(super) async fn fetch(&mut self, path: &str) -> Outcome<FetchedAnswer> {
        let request = Request::get(path).header("host", &self.host).header("accept", "*/*");
        let request = request.body(Empty::new())?;
        self.sender.ready().await.map_err(|error| error_chain(&error))?;
        let answer = self.sender.send_request(request).await.map_err(|e| error_chain(&e))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("wanted status 200, got {}", answer.status()).into());
        }
        let body = answer.into_body().collect().await.map_err(|error| error_chain(&error))?;
        Ok(FetchedAnswer { body: body.to_bytes().to_vec(), figures: Vec::new() })
    }
}
