//! A notary between real sockets: its clients, and servers that may be hostile.
//!
//! All evidence here is simulated.

mod clients;
mod fetch;
mod floods;
mod hostile_client;
mod hostile_upstream;
mod nginx;
mod renewal;
mod site;
