//! Computes operations of `confide-rlwe` and of this crate's CKKS on request, to be compared with
//! another implementation (`tests/python/test_seal.py`).
//!
//! `cargo run -p confide-report-003 --example ring` reads one JSON object per line, `{"do": …}`, and
//! writes one answer per line. Polynomials are arrays of residues, limb after limb: "values" are in
//! NTT form, "coefficients" in coefficient form.

use std::{
    error::Error,
    io::{BufRead, Write},
    process::ExitCode,
};

use confide_report_003::ckks::{self, CkksContext, Parameters};
use confide_rlwe::{
    Ciphertext, Context, Modulus, NttPoly, NttTable, ParameterSet, Plaintext, Poly, Ring, Rng,
    SecretKey,
};
use serde_json::{Value, json};

type Answer = Result<Value, Box<dyn Error>>;

fn main() -> ExitCode {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = line.map_err(Into::into).and_then(|line| answer_line(&line));
        let answer = answer.unwrap_or_else(|error| json!({ "error": error.to_string() }));
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn answer_line(line: &str) -> Answer {
    let asked: Value = serde_json::from_str(line)?;
    match asked["do"].as_str() {
        Some("primes") => primes(&asked),
        Some("transform") => transform_ntt(&asked),
        Some("multiply") => multiply_polynomials(&asked),
        Some("phase") => phase(&asked),
        Some("drop_limb") => divide_by_last_prime(&asked),
        Some("bfv_product") => bfv_product(&asked),
        Some("ckks_encode") => ckks_encode(&asked),
        Some("ckks_decode") => ckks_decode(&asked),
        Some("ckks_product") => ckks_product(&asked),
        _ => Err(format!("do: unknown operation {}", asked["do"]).into()),
    }
}

fn primes(asked: &Value) -> Answer {
    let name: String = parse_field(asked, "set")?;
    if let Ok(parameters) = Parameters::from_name(&name) {
        let (data, special) = parameters.primes();
        return Ok(json!({ "n": parameters.n(), "primes": data, "special": special }));
    }
    let set = ParameterSet::dangerous_from_name(&name)?;
    Ok(json!({ "n": set.n(), "primes": set.primes(), "plaintext_bits": set.plaintext_bits() }))
}

fn transform_ntt(asked: &Value) -> Answer {
    let table =
        NttTable::new(parse_field(asked, "n")?, Modulus::new(parse_field(asked, "modulus")?)?)?;
    let coefficients: Vec<u64> = parse_field(asked, "coefficients")?;
    let mut values = coefficients.clone();
    table.forward(&mut values);
    let mut back = values.clone();
    table.inverse(&mut back);
    Ok(json!({ "root": table.root(), "values": values, "inverse": back }))
}

fn multiply_polynomials(asked: &Value) -> Answer {
    let ring = Ring::new(parse_field(asked, "n")?, &[parse_field(asked, "modulus")?])?;
    let poly = |name: &str| -> Result<NttPoly, Box<dyn Error>> {
        Ok(Poly::from_values(&ring, parse_field(asked, name)?)?.into_ntt())
    };
    let (mut product, right) = (poly("left")?, poly("right")?);
    product.mul_assign(&right);
    Ok(json!({ "coefficients": product.into_poly().values() }))
}

/// Computes c0 + c1·s in coefficient form from inputs in NTT form.
fn phase(asked: &Value) -> Answer {
    let ring = Ring::new(parse_field(asked, "n")?, &parse_field::<Vec<u64>>(asked, "primes")?)?;
    let poly = |name: &str| -> Result<NttPoly, Box<dyn Error>> {
        Ok(NttPoly::from_values(&ring, parse_field(asked, name)?)?)
    };
    let mut sum = poly("c0")?;
    sum.add_product(&poly("c1")?, &poly("s")?);
    Ok(json!({ "coefficients": sum.into_poly().values() }))
}

fn divide_by_last_prime(asked: &Value) -> Answer {
    let ring = Ring::new(parse_field(asked, "n")?, &parse_field::<Vec<u64>>(asked, "primes")?)?;
    let poly = NttPoly::from_values(&ring, parse_field(asked, "values")?)?;
    Ok(json!({ "values": poly.divide_by_last_prime().values() }))
}

/// Encrypts messages mod 2^k, multiplies by small weights, switches down and decrypts.
fn bfv_product(asked: &Value) -> Answer {
    let set = ParameterSet::dangerous_from_name(&parse_field::<String>(asked, "set")?)?;
    let context = Context::new(&set)?;
    let mut rng = Rng::from_os()?;
    let key = SecretKey::generate(&context, &mut rng);
    let input = key.encrypt(&parse_field::<Vec<u64>>(asked, "messages")?, &mut rng)?.expand();
    let weights = Plaintext::new(&context, &parse_field::<Vec<i64>>(asked, "weights")?)?;
    let mut product = Ciphertext::zero(&context);
    product.add_product(&input, &weights);
    Ok(json!({ "messages": key.decrypt(&product.switch_down())? }))
}

fn ckks_encode(asked: &Value) -> Answer {
    let ckks = CkksContext::new(&Parameters::from_name(&parse_field::<String>(asked, "set")?)?)?;
    let message = ckks.encode(&parse_field::<Vec<f64>>(asked, "slots")?)?;
    let plaintext = ckks.to_plaintext(&message, ckks.limbs_max())?;
    let (coefficients, values) = (message.coefficients(), plaintext.poly().values());
    Ok(json!({ "coefficients": coefficients, "values": values, "scale": message.scale() }))
}

/// Decodes the slots of a plaintext, as a ciphertext whose c1 is zero, which any key decrypts.
fn ckks_decode(asked: &Value) -> Answer {
    let parameters = Parameters::from_name(&parse_field::<String>(asked, "set")?)?;
    let ckks = CkksContext::new(&parameters)?;
    let ring = Ring::new(parameters.n(), &parameters.primes().0)?;
    let values = NttPoly::from_values(&ring, parse_field(asked, "values")?)?;
    let scale = parse_field(asked, "scale")?;
    let trivial = ckks::Ciphertext::from_polynomials(&ckks, values, NttPoly::zero(&ring), scale)?;
    let key = ckks::SecretKey::generate(&ckks, &mut Rng::from_os()?);
    Ok(json!({ "slots": ckks.decode(&key.decrypt(&trivial)?)? }))
}

/// Encrypts slots, multiplies, rescales, rotates and decrypts.
fn ckks_product(asked: &Value) -> Answer {
    let ckks = CkksContext::new(&Parameters::from_name(&parse_field::<String>(asked, "set")?)?)?;
    let mut rng = Rng::from_os()?;
    let key = ckks::SecretKey::generate(&ckks, &mut rng);
    let message = ckks.encode(&parse_field::<Vec<f64>>(asked, "slots")?)?;
    let factor = ckks.encode(&parse_field::<Vec<f64>>(asked, "factor")?)?;
    let factor = ckks.to_plaintext(&factor, ckks.limbs_max())?;
    let product = key.encrypt(&message, ckks.limbs_max(), &mut rng)?.product(&factor)?.rescale()?;
    let rotation = key.galois_key(parse_field(asked, "steps")?, &mut rng)?;
    let rotated = product.rotate(&ckks, &rotation)?;
    let slots = ckks.decode(&key.decrypt(&rotated)?)?;
    Ok(json!({ "slots": slots, "scale": rotated.scale() }))
}

fn parse_field<T: serde::de::DeserializeOwned>(
    asked: &Value,
    name: &str,
) -> Result<T, Box<dyn Error>> {
    serde_json::from_value(asked[name].clone()).map_err(|error| format!("{name}: {error}").into())
}
