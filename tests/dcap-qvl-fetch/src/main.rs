//! `dcap-qvl-fetch URL QUOTE ROOT NOW [early|NUMBER]`: fetches the collateral of a quote from the
//! PCCS at URL with dcap-qvl's own client, verifies the quote with it under the root certificate
//! (DER) at NOW (unix seconds), and prints the TCB status.

use std::{error::Error, fs};

use dcap_qvl::{
    collateral::{CollateralClient, TcbEvaluationDataSet},
    verify::QuoteVerifier,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, quote, root, now, set @ ..] = arguments.as_slice() else {
        return Err("wanted URL QUOTE ROOT NOW [early|NUMBER]".into());
    };
    let set = match set.first().map(String::as_str) {
        None => TcbEvaluationDataSet::Standard,
        Some("early") => TcbEvaluationDataSet::Early,
        Some(number) => TcbEvaluationDataSet::Number(number.parse()?),
    };
    let quote = fs::read(quote)?;
    let client = CollateralClient::with_default_http(url)?.with_evaluation_data_set(set);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let collateral = runtime.block_on(client.fetch(&quote))?;
    let verifier = QuoteVerifier::new(fs::read(root)?);
    let report = verifier.verify(&quote, &collateral, now.parse()?)?;
    println!("{}", report.status);
    Ok(())
}
