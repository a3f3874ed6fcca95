//! Verifies a quote: `verify_quote QUOTE COLLATERAL POLICY`, three files as `confide attest
//! --simulate tdx --out FOLDER` writes them.

use std::{env, error::Error, fs, time::SystemTime};

use confide_verifier::{AwsLc, Endorsements, Evidence, Policy, UnixTime, appraise};

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = env::args().skip(1).collect();
    let [quote, collateral, policy] = files.as_slice() else {
        return Err("usage: verify_quote QUOTE COLLATERAL POLICY".into());
    };
    let quote = fs::read(quote)?;
    let endorsements = Endorsements::parse(&fs::read(collateral)?)?;
    let policy = Policy::from_toml(&fs::read_to_string(policy)?)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;

    let evidence = Evidence { quote: &quote, ..Evidence::default() };
    let now = UnixTime::since_unix_epoch(now);
    let appraised = appraise(&evidence, &endorsements, &policy, now, &AwsLc)?;
    println!("accepted: {:#}", appraised.to_json());
    Ok(())
}
