//! Moves bytes between sockets inside the kernel (splice(2)), through a bounded number of pipes.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// The bytes that a pipe shall hold. A process without privileges gets less once its pipes hold `pipe-user-pages-soft`.
const PIPE_BYTES: usize = 256 * 1024;

/// Pipes that no connection uses, and the number that may still be made.
#[derive(Debug)]
pub(crate) struct PipePool {
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    unused: Vec<Pipe>,
    creatable: usize,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe in use. When it is dropped with bytes inside, the pipe is closed instead of given to another connection.
#[derive(Debug)]
pub(crate) struct PipeLease {
    pool: Arc<PipePool>,
    pipe: Option<Pipe>,
    held: usize,
}

impl PipePool {
    /// Makes a pool of at most `count` pipes, created when first needed.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(PoolState { unused: Vec::new(), creatable: count }) })
    }

    /// Takes an empty pipe; `None` if all are in use, or the system gives none.
    pub(crate) fn take(self: &Arc<Self>) -> Option<PipeLease> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = match state.unused.pop() {
            Some(pipe) => pipe,
            None if state.creatable > 0 => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
                // With the size of the system it works as well, in more steps.
                let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
                state.creatable -= 1;
                Pipe { read, write }
            }
            None => return None,
        };
        drop(state);
        Some(PipeLease { pool: self.clone(), pipe: Some(pipe), held: 0 })
    }
}

impl PipeLease {
    /// Moves bytes from a socket into the empty pipe and returns their number; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if the socket has none.
    pub(crate) fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let pipe = self.pipe()?;
        let moved = splice(from, None, &pipe.write, None, PIPE_BYTES, flags)?;
        self.held += moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe to a socket.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes none.
    pub(crate) fn drain(&mut self, to: impl AsFd) -> io::Result<()> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let pipe = self.pipe()?;
        let moved = splice(&pipe.read, None, to, None, self.held, flags)?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.held -= moved;
        Ok(())
    }

    /// The number of bytes in the pipe.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held
    }

    fn pipe(&self) -> io::Result<&Pipe> {
        self.pipe.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for PipeLease {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.pipe.take() {
            Some(pipe) if self.held == 0 => state.unused.push(pipe),
            _ => state.creatable += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn a_pool_gives_only_its_number_of_pipes_and_takes_them_back() {
        let pool = PipePool::new(2);
        let (first, second) = (pool.take().unwrap(), pool.take());
        assert!(second.is_some() && pool.take().is_none());
        drop(first);
        assert!(pool.take().is_some());
    }

    #[test]
    fn bytes_left_in_a_pipe_reach_no_other_connection() {
        let pool = PipePool::new(1);
        let (mut client, from) = UnixStream::pair().unwrap();
        let (to, mut upstream) = UnixStream::pair().unwrap();
        client.write_all(b"secret").unwrap();
        let mut pipe = pool.take().unwrap();
        assert_eq!(pipe.fill(&from).unwrap(), 6);
        drop(pipe);
        client.write_all(b"next").unwrap();
        let mut pipe = pool.take().expect("a new one took its place");
        assert_eq!(pipe.fill(&from).unwrap(), 4);
        pipe.drain(&to).unwrap();
        assert_eq!(pipe.held_bytes(), 0);
        drop(to);
        let mut got = String::new();
        upstream.read_to_string(&mut got).unwrap();
        assert_eq!(got, "next");
    }
}
