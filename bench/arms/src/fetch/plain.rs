//! A plain fetch: one kept TLS session with the server, its certificate pinned.

use std::path::Path;

use bytes::Bytes;
use confide_channel::{Binding, ClientOptions, PlainClient};
use confide_client::with_causes;
use confide_evidence::pem::decode_chain;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{DEADLINE, Fetched, unix_now};
use crate::{Outcome, read};

pub(super) struct Plain {
    host: String,
    sender: SendRequest<Empty<Bytes>>,
}

impl Plain {
    pub(super) async fn open(host: &str, root: &Path) -> Outcome<Self> {
        let chain = decode_chain("--root", &read(root)?).map_err(|error| error.to_string())?;
        let certificate = chain.first().ok_or("--root: no certificate in the file")?;
        let options = ClientOptions { binding: Binding::None, deadline: DEADLINE };
        let client = PlainClient::new(options, certificate, unix_now)
            .map_err(|error| with_causes(&error))?;
        let stream = TcpStream::connect(host).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let tls = client.connect(name, stream).await.map_err(|error| with_causes(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(tls.stream))
            .await
            .map_err(|error| with_causes(&error))?;
        tokio::spawn(connection);
        Ok(Self { host: host.into(), sender })
    }

    pub(super) async fn fetch(&mut self, path: &str) -> Outcome<Fetched> {
        let request = Request::get(path).header("host", &self.host).header("accept", "*/*");
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        self.sender.ready().await.map_err(|error| with_causes(&error))?;
        let answer = self.sender.send_request(request).await.map_err(|e| with_causes(&e))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("wanted status 200, got {}", answer.status()));
        }
        let body = answer.into_body().collect().await.map_err(|error| with_causes(&error))?;
        Ok(Fetched { body: body.to_bytes().to_vec(), figures: Vec::new() })
    }
}
