//! Connects to a server that presents a TDX or SGX quote: `attested_connect ADDRESS POLICY`, for
//! example to `confide gateway --simulate FOLDER --binding session` with the policy
//! `FOLDER/policy.toml`.

use std::{env, error::Error, fs, sync::Arc, time::Duration, time::SystemTime};

use confide_channel::{Binding, Client, ClientOptions};
use confide_evidence::{Appraise, PresentedEvidence};
use confide_verifier::{Appraised, AwsLc, Endorsements, Policy, Rejection, UnixTime, appraise};

struct Verifier(Policy);

impl Appraise for Verifier {
    type Appraised = Appraised;
    type Rejection = Rejection;

    fn appraise(&self, presented: &PresentedEvidence<'_>) -> Result<Appraised, Rejection> {
        let endorsements = Endorsements::parse(presented.collateral.unwrap_or_default())
            .map_err(|error| Rejection::before_checks(error.into()))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let now = UnixTime::since_unix_epoch(now);
        appraise(&presented.into(), &endorsements, &self.0, now, &AwsLc)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, policy] = arguments.as_slice() else {
        return Err("usage: attested_connect ADDRESS POLICY".into());
    };
    let policy = Policy::from_toml(&fs::read_to_string(policy)?)?;
    let options = ClientOptions { binding: Binding::Session, deadline: Duration::from_secs(10) };
    let client = Client::new(options, Arc::new(Verifier(policy)))?;
    let socket = tokio::net::TcpStream::connect(address).await?;
    let (_stream, appraised, timings) = client.connect("localhost", socket).await?.into_parts();
    println!("accepted with scope {} in {timings:?}", appraised.scope().as_str());
    Ok(())
}
