//! Writes the input of the program `dcap`: `dcap-input QUOTE COLLATERAL UNIX OUT`.

use std::{env, error::Error, fs};

use confide_guest_dcap::DcapInput;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [quote, collateral, at, out] = arguments.as_slice() else {
        return Err("wanted QUOTE COLLATERAL UNIX OUT".into());
    };
    let input = DcapInput::new(&fs::read(quote)?, &fs::read(collateral)?, at.parse()?)?;
    Ok(fs::write(out, input.encode())?)
}
