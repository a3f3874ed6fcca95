//! `confide prove signature`: the possession of a signature that is not shown, without the zkVM.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::ValueEnum;
use confide_evidence::pem;
use confide_sigma::{
    HashFunction, KEY_FILE_LENGTH_MAX, ProofSecurity, PublicKey, SigmaError, SignatureProof,
    SignatureScheme,
};
use serde_json::{Value, json};

use crate::{
    answer::CommandReport, error::CliError, files::read_file, new_file::NewFile,
    process::merge_objects, verdict_lines::fact_line,
};

/// The longest message: it is read whole and hashed.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The longest signature: RSA-4096 has 512 bytes.
const SIGNATURE_BYTES_MAX: u64 = 1024;

/// The public half of a signature proof: who signed which message, and for which context.
#[derive(clap::Args)]
pub(crate) struct SignatureClaim {
    /// The signer's certificate, DER or PEM. Only its key is read: verify it first.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    certificate: Option<PathBuf>,
    /// The signer's public key: DER, PEM or JWK.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The message that was signed.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    /// Context to bind the proof to, in hexadecimal: the verifier's nonce, or a root.
    #[arg(long, value_name = "HEX", default_value = "", value_parser = parse_context)]
    context: ContextBytes,
}

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    claimed: SignatureClaim,
    /// The signature: `openssl dgst -sha256 -sign KEY -out FILE MESSAGE`. ECDSA in DER, or r and s.
    #[arg(long, value_name = "FILE")]
    signature: PathBuf,
    /// The hash of the signature; by default SHA-384 for P-384, else SHA-256.
    #[arg(long, value_enum)]
    hash: Option<HashName>,
    /// The RSA signature is RSASSA-PSS; its salt is read out of it and becomes public.
    #[arg(long)]
    pss: bool,
    /// Where to write the proof.
    #[arg(long, value_name = "PROOF")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum HashName {
    Sha256,
    Sha384,
    Sha512,
}

/// Bytes given in hexadecimal.
#[derive(Clone)]
pub(crate) struct ContextBytes(pub(crate) Vec<u8>);

fn parse_context(text: &str) -> Result<ContextBytes, String> {
    hex::decode(text).map(ContextBytes).map_err(|error| error.to_string())
}

impl SignatureClaim {
    /// The signer's key, or `None` if no file names one.
    pub(crate) fn read_key(&self) -> Result<Option<PublicKey>, CliError> {
        let read = |path: &Path| read_file(path, KEY_FILE_LENGTH_MAX as u64);
        let (path, key) = match (&self.certificate, &self.key) {
            (Some(path), _) => (path, PublicKey::from_certificate(&read(path)?)),
            (None, Some(path)) => {
                let bytes = read(path)?;
                let json = bytes.trim_ascii_start().starts_with(b"{");
                let from = if json { PublicKey::from_jwk } else { PublicKey::from_spki };
                (path, from(&bytes))
            }
            (None, None) => return Ok(None),
        };
        key.map(Some).map_err(|error| {
            CliError::in_file(path)(error).with_hint(
                "RSA of 2048 to 4096 bits with e = 65537, P-256 and P-384 are supported: DER, PEM or \
                 JWK",
            )
        })
    }

    /// The signed message, or `None` if no file names one.
    pub(crate) fn read_message(&self) -> Result<Option<Vec<u8>>, CliError> {
        self.message.as_deref().map(|path| read_file(path, MESSAGE_BYTES_MAX)).transpose()
    }

    /// The options that were given, so that a proof of another kind can refuse them.
    pub(crate) fn given_options(&self) -> Vec<&'static str> {
        let given = [
            ("--certificate", self.certificate.is_some()),
            ("--key", self.key.is_some()),
            ("--message", self.message.is_some()),
            ("--context", !self.context.0.is_empty()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option).collect()
    }

    pub(crate) fn context(&self) -> &[u8] {
        &self.context.0
    }

    /// The file that is public anyway and holds the signature, if one does.
    fn find_public_copy(&self, signature: &[u8]) -> Result<Option<&Path>, CliError> {
        if signature.is_empty() {
            return Ok(None);
        }
        let inside = |bytes: &[u8]| bytes.windows(signature.len()).any(|part| part == signature);
        for path in [&self.certificate, &self.key, &self.message].into_iter().flatten() {
            let bytes = read_file(path, MESSAGE_BYTES_MAX)?;
            // Only a chain of certificates has anything more to search.
            let decoded = pem::decode_chain("certificate", &bytes).unwrap_or_default();
            if inside(&bytes) || decoded.iter().any(|der| inside(der)) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let missing = |what| CliError::new(format!("wanted {what}, got none"));
    let key = args.claimed.read_key()?.ok_or_else(|| missing("--certificate or --key"))?;
    let message = args.claimed.read_message()?.ok_or_else(|| missing("--message"))?;
    let signature = read_file(&args.signature, SIGNATURE_BYTES_MAX)?;
    let hash = args.hash.map_or_else(|| default_hash(&key), HashName::to_hash_function);
    let digest = hash.digest(&message);
    let make = match (key.name().starts_with("RSA"), args.pss) {
        (true, false) => SignatureProof::prove_pkcs1,
        (true, true) => SignatureProof::prove_pss,
        (false, false) => SignatureProof::prove_ecdsa,
        (false, true) => {
            return Err(CliError::new(format!("--pss is for RSA, got {}", key.name())));
        }
    };
    let started = Instant::now();
    let proof =
        make(&key, hash, &digest, &signature, args.claimed.context()).map_err(explain_error)?;
    let prove_ms = started.elapsed().as_secs_f64() * 1e3;
    let started = Instant::now();
    // A proof that does not hold is not written.
    proof.verify(&key, &message, args.claimed.context()).map_err(explain_error)?;
    let check_ms = started.elapsed().as_secs_f64() * 1e3;
    // Whether the proof is pointless is determined before it is written, so that an error is not hidden.
    let public = args.claimed.find_public_copy(&signature)?;
    let file = proof.to_bytes();
    NewFile::create_next_to(&args.out)?.save(&file)?;
    let (bytes, length, out) = (file.len(), signature.len(), args.out.display());
    let pointless = public.map(|path| {
        let path = path.display();
        format!("{path} holds this signature, which verifies: anyone with that file needs no proof")
    });
    let mut text = describe_facts(&key, &proof);
    text += &fact_line("proof", format_args!("{out} ({bytes} bytes)"));
    let time = format_args!("{prove_ms:.2} ms to prove, {check_ms:.2} ms to check");
    text += &fact_line("time", time);
    let alternative =
        format!("if the signature may be shown: its {length} bytes verify and say the same");
    text += &fact_line("pointless", pointless.as_ref().unwrap_or(&alternative));
    let more = json!({
        "proof_bytes": bytes,
        "signature_bytes": length,
        "prove_ms": prove_ms,
        "check_ms": check_ms,
        "pointless": pointless,
        "out": out.to_string(),
    });
    CommandReport::new(text, merge_objects(facts_json(&key, &proof), more)).print(args.json)
}

/// The lines about every proof: its statement, what it rests on, what it hides.
pub(crate) fn describe_facts(key: &PublicKey, proof: &SignatureProof) -> String {
    let ProofSecurity { back_end, proven_bits, conjectured_bits, basis, zero_knowledge } =
        SignatureProof::security(key);
    let statement = format!("its maker knew a signature by this {} key", key.name());
    let mut text = fact_line("statement", statement);
    let scheme = format!("{} with {}", proof.scheme().name(), proof.hash().name());
    let mut field =
        |name: &str, value: &str| text += &fact_line("", format_args!("{name}: {value}"));
    field("key_sha256", &hex::encode(key.id()));
    field("scheme", &scheme);
    field("digest", &hex::encode(proof.digest()));
    if let SignatureScheme::Pss { salt } = proof.scheme() {
        field("salt", &hex::encode(salt));
    }
    field("context", &describe_context(proof.context()));
    text += &fact_line("program", "none: a sigma protocol needs none");
    text += &fact_line("back end", format_args!("{back_end} {}", env!("CARGO_PKG_VERSION")));
    let proven = proven_bits.map_or("none".to_string(), |bits| format!("{bits} bits"));
    let security = format!("{proven} proven, {conjectured_bits} bits conjectured ({basis})");
    text += &fact_line("security", security);
    text += &fact_line("zero-knowledge", if zero_knowledge { "yes" } else { "no" });
    text += &fact_line("hidden", describe_hidden_part(proof));
    text
}

/// The same facts for programs.
pub(crate) fn facts_json(key: &PublicKey, proof: &SignatureProof) -> Value {
    let salt = match proof.scheme() {
        SignatureScheme::Pss { salt } => Some(hex::encode(salt)),
        _ => None,
    };
    let security = SignatureProof::security(key);
    json!({
        "claim": "signature",
        "key": key.name(),
        "key_sha256": hex::encode(key.id()),
        "scheme": proof.scheme().name(),
        "hash": proof.hash().name(),
        "digest": hex::encode(proof.digest()),
        "salt": salt,
        "context": hex::encode(proof.context()),
        "program_digest": null,
        "backend": security.back_end,
        "backend_version": env!("CARGO_PKG_VERSION"),
        "proven_bits": security.proven_bits,
        "conjectured_bits": security.conjectured_bits,
        "basis": security.basis,
        "zero_knowledge": security.zero_knowledge,
        "hidden": describe_hidden_part(proof),
    })
}

fn describe_hidden_part(proof: &SignatureProof) -> &'static str {
    match proof.scheme() {
        SignatureScheme::Ecdsa => {
            "half of the signature (s); its point R, key, digest and context are public"
        }
        _ => "the signature; key, digest and context are public",
    }
}

fn describe_context(context: &[u8]) -> String {
    if context.is_empty() {
        return "none: the proof can be passed on".to_string();
    }
    hex::encode(context)
}

fn default_hash(key: &PublicKey) -> HashFunction {
    if key.name() == "P-384" { HashFunction::Sha384 } else { HashFunction::Sha256 }
}

fn explain_error(error: SigmaError) -> CliError {
    let failure = CliError::new(&error);
    match error {
        SigmaError::SignatureInvalid => failure.with_hint(
            "check that it is by this key, over exactly this message, with this --hash and --pss",
        ),
        _ => failure,
    }
}

impl HashName {
    fn to_hash_function(self) -> HashFunction {
        match self {
            Self::Sha256 => HashFunction::Sha256,
            Self::Sha384 => HashFunction::Sha384,
            Self::Sha512 => HashFunction::Sha512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_one_without_the_signature() {
        let absent = std::env::temp_dir().join("confide-no-such-file/message");
        let claimed = SignatureClaim {
            certificate: None,
            key: None,
            message: Some(absent),
            context: ContextBytes(Vec::new()),
        };
        assert!(claimed.find_public_copy(b"signature").is_err());
    }
}
