//! Writes `confide_web.js` and `confide_web_bg.wasm` for `npm/`. The command-line program of wasm-bindgen has to
//! have the version of the library exactly; here Cargo.lock keeps both at one.

use std::{env, process::ExitCode};

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [input, out] = arguments.as_slice() else {
        eprintln!("usage: confide-web-bindgen INPUT.wasm FOLDER");
        return ExitCode::from(2);
    };
    let mut bindgen = Bindgen::new();
    let bindgen = bindgen.input_path(input).out_name("confide_web").typescript(false);
    // Names of functions and tools are a tenth of the file.
    let bindgen = bindgen.remove_name_section(true).remove_producers_section(true);
    match bindgen.web(true).and_then(|bindgen| bindgen.generate(out)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{input}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
