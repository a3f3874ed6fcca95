//! A byte stream of any kind.

use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) type Stream = Box<dyn ReadWrite>;

pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ReadWrite for T {}
