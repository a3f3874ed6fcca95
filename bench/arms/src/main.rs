//! `confide-arm`: our arms of the bench, one file each, and the relay that adds a known delay.
//!
//! An arm speaks `bench/PROTOCOL.md` on standard input and output. It is a client or a component
//! of the product in a process of its own, so that a peer can stand in its place.

mod adapters;
mod batch;
mod body_encryption;
mod chat;
mod claims;
mod clock;
mod collateral;
mod conversation;
mod fetch;
mod gateway;
mod generate;
mod link;
mod llm;
mod nested;
mod network;
mod relay;
mod signed;
mod stream;
mod trust;
mod verify;
mod verify_snp;
mod version;
mod zk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use confide_arm_line::exit_code;

#[derive(Parser)]
#[command(name = "confide-arm", version, about)]
struct Arguments {
    #[command(subcommand)]
    arm: Arm,
}

#[derive(Subcommand)]
enum Arm {
    /// Whole batches of the masked scheme, including their preparation.
    AdapterBatch(adapters::batch::Args),
    /// Report 003's query to `confide serve`, by model or adapter.
    AdapterChat(adapters::chat::Args),
    /// The LM head of the published shape.
    AdapterHead(adapters::head::Args),
    /// A random PEFT adapter of a real model's shape (writes a folder, not an arm).
    AdapterMake(adapters::make::Args),
    /// Each CKKS operation once, timed separately.
    AdapterOperations(adapters::operations::Args),
    /// Report 003's query over its WebSocket routes.
    AdapterSocket(adapters::socket::Args),
    /// One projection of a private adapter, both roles in this process.
    AdapterStep(adapters::projection::Args),
    /// A complete LoRA, token after token, without a base model.
    AdapterToken(adapters::token::Args),
    /// Evidence for many waiting sessions from one simulated device.
    Batch(batch::Args),
    /// Chat completions over plain or attested TLS, directly or through a tunnel.
    Chat(chat::Args),
    /// One statement about a TLS session, shown or proved.
    Claim(claims::Args),
    /// Appraisal with endorsements fetched, cached or stapled.
    Collateral(collateral::Args),
    /// One answer of an HTTPS server, fetched plainly or through an attested notary.
    Fetch(fetch::Args),
    /// The HTTPS server for `fetch` (a service, not an arm).
    FetchHost(fetch::host::Args),
    /// Small requests to a gateway over TCP, TLS or attested TLS.
    Gateway(gateway::Args),
    /// Quote generation by the simulated attester.
    Generate(generate::Args),
    /// A service behind a link with a known round trip (a service, not an arm).
    Link(link::Args),
    /// A model server under load, open loop, over plain HTTP, TLS or attested TLS.
    Llm(llm::Args),
    /// The saturation of a server, measured once and stored (a service, not an arm).
    LlmSaturation(llm::saturation::Args),
    /// Bulk transfer through one or two layers of TLS on loopback.
    Nested(nested::Args),
    /// A simulated access network with a known delay and rate (a service, not an arm).
    Network(network::Args),
    /// A TCP relay that adds a round-trip delay (a service, not an arm).
    Relay(relay::Args),
    /// Appraisal of a quote.
    Verify(verify::Args),
    /// Appraisal of an SEV-SNP report.
    VerifySnp(verify_snp::Args),
    /// One stage of a zkVM: native, emulate, prove or check.
    Zk(zk::Args),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().arm {
        Arm::AdapterBatch(args) => adapters::batch::run(args),
        Arm::AdapterChat(args) => adapters::chat::run(args),
        Arm::AdapterHead(args) => adapters::head::run(args),
        Arm::AdapterMake(args) => adapters::make::run(args),
        Arm::AdapterOperations(args) => adapters::operations::run(args),
        Arm::AdapterSocket(args) => adapters::socket::run(args),
        Arm::AdapterStep(args) => adapters::projection::run(args),
        Arm::AdapterToken(args) => adapters::token::run(args),
        Arm::Batch(args) => batch::run(args),
        Arm::Chat(args) => chat::run(args),
        Arm::Claim(args) => claims::run(args),
        Arm::Collateral(args) => collateral::run(args),
        Arm::Fetch(args) => fetch::run(args),
        Arm::FetchHost(args) => fetch::host::run(args),
        Arm::Gateway(args) => gateway::run(args),
        Arm::Generate(args) => generate::run(args),
        Arm::Link(args) => link::run(args),
        Arm::Llm(args) => llm::run(args),
        Arm::LlmSaturation(args) => llm::saturation::run(args),
        Arm::Nested(args) => nested::run(args),
        Arm::Network(args) => network::run(args),
        Arm::Relay(args) => relay::run(args),
        Arm::Verify(args) => verify::run(args),
        Arm::VerifySnp(args) => verify_snp::run(args),
        Arm::Zk(args) => zk::run(args),
    };
    exit_code("confide-arm", outcome)
}
