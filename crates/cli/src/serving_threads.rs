//! The threads of a server that has one for each core.

use std::{net::SocketAddr, ops::RangeInclusive};

use confide_http::{Listener, ServingThreads, available_cores};

use crate::{
    error::CliError,
    os,
    process::{cannot_start, explain_unusable_address},
};

/// The number of threads that serve, as clap reads a range.
pub(crate) const SERVING_THREADS: RangeInclusive<i64> = 1..=1024;

/// Starts the threads that serve: this number, or one for each core that this process may use.
pub(crate) fn start_serving_threads(count: Option<u16>) -> Result<ServingThreads, CliError> {
    ServingThreads::start(count.map_or_else(available_cores, usize::from)).map_err(cannot_start)
}

/// Listens with a socket for each thread, and gives the address with the port that was taken.
pub(crate) async fn listen_on_threads(
    threads: &ServingThreads,
    wanted: SocketAddr,
) -> Result<(Listener, SocketAddr), CliError> {
    os::raise_descriptor_limit();
    let bind = || {
        let listener = threads.bind(wanted)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bind().map_err(|error| explain_unusable_address(wanted, &error))
}
