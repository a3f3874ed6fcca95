//! `confide prove signature`: that one holds a signature, without showing it, and no zkVM.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::ValueEnum;
use confide_evidence::pem;
use confide_sigma::{
    Hash, KEY_FILE_LENGTH_MAX, PublicKey, Scheme, Security, SigmaError, SignatureProof,
};
use serde_json::{Value, json};

use crate::{
    error::{CliError, read_file},
    new_file::NewFile,
    process::print_whole,
};

/// Longest message: it is read whole and hashed.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Longest signature: RSA-4096 has 512 bytes.
const SIGNATURE_BYTES_MAX: u64 = 1024;

/// Who signed what, for which context: the public half of a signature proof.
#[derive(clap::Args)]
pub(crate) struct Claimed {
    /// The signer's certificate, DER or PEM. Only its key is read: judge it before.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    certificate: Option<PathBuf>,
    /// The signer's public key: DER, PEM or JWK.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The message that was signed.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    /// What the proof is bound to, in hexadecimal: a nonce of the verifier's, a root.
    #[arg(long, value_name = "HEX", default_value = "", value_parser = context)]
    context: Context,
}

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    claimed: Claimed,
    /// The signature: `openssl dgst -sha256 -sign KEY -out FILE MESSAGE`. ECDSA in DER, or r and s.
    #[arg(long, value_name = "FILE")]
    signature: PathBuf,
    /// The hash of the signature; without it SHA-384 for P-384, else SHA-256.
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
pub(crate) struct Context(pub(crate) Vec<u8>);

fn context(text: &str) -> Result<Context, String> {
    hex::decode(text).map(Context).map_err(|error| error.to_string())
}

impl Claimed {
    /// The signer's key, or `None` where no file names one.
    pub(crate) fn key(&self) -> Result<Option<PublicKey>, CliError> {
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
        let wrong = |error: SigmaError| {
            CliError::new(format!("{}: {error}", path.display())).hint(
                "RSA of 2048 to 4096 bits with e = 65537, P-256 and P-384 are proved: DER, PEM or JWK",
            )
        };
        key.map(Some).map_err(wrong)
    }

    pub(crate) fn message(&self) -> Result<Option<Vec<u8>>, CliError> {
        self.message.as_deref().map(|path| read_file(path, MESSAGE_BYTES_MAX)).transpose()
    }

    /// The options that were given, so that a proof of another kind can refuse them.
    pub(crate) fn given(&self) -> Vec<&'static str> {
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

    /// Which of the files that are shown anyway hold the signature, if one does.
    fn holds(&self, signature: &[u8]) -> Result<Option<&Path>, CliError> {
        if signature.is_empty() {
            return Ok(None);
        }
        let inside = |bytes: &[u8]| bytes.windows(signature.len()).any(|part| part == signature);
        for path in [&self.certificate, &self.key, &self.message].into_iter().flatten() {
            let bytes = read_file(path, MESSAGE_BYTES_MAX)?;
            // What is no chain of certificates has nothing more to look into.
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
    let key = args.claimed.key()?.ok_or_else(|| missing("--certificate or --key"))?;
    let message = args.claimed.message()?.ok_or_else(|| missing("--message"))?;
    let signature = read_file(&args.signature, SIGNATURE_BYTES_MAX)?;
    let hash = args.hash.map_or_else(|| usual(&key), HashName::hash);
    let digest = hash.digest(&message);
    let make = match (key.name().starts_with("RSA"), args.pss) {
        (true, false) => SignatureProof::pkcs1,
        (true, true) => SignatureProof::pss,
        (false, false) => SignatureProof::ecdsa,
        (false, true) => {
            return Err(CliError::new(format!("--pss is for RSA, got {}", key.name())));
        }
    };
    let started = Instant::now();
    let proof = make(&key, hash, &digest, &signature, args.claimed.context()).map_err(explained)?;
    let prove_ms = started.elapsed().as_secs_f64() * 1e3;
    let started = Instant::now();
    // A proof that does not hold is not written, whoever made it.
    proof.verify(&key, &message, args.claimed.context()).map_err(explained)?;
    let check_ms = started.elapsed().as_secs_f64() * 1e3;
    // Whether it is pointless has to be known before it is written: no silence where it is not.
    let public = args.claimed.holds(&signature)?;
    let file = proof.to_bytes();
    NewFile::beside(&args.out)?.save(&file)?;
    let told = Told { prove_ms, check_ms, bytes: file.len(), signature: signature.len(), public };
    let text = shown(args, &key, &proof, &told);
    print_whole(&text).map(|()| ExitCode::SUCCESS)
}

/// What was measured and found out of one proof.
struct Told<'a> {
    prove_ms: f64,
    check_ms: f64,
    bytes: usize,
    signature: usize,
    /// A file that is shown anyway and holds the signature.
    public: Option<&'a Path>,
}

fn shown(args: &Args, key: &PublicKey, proof: &SignatureProof, told: &Told<'_>) -> String {
    let Told { prove_ms, check_ms, bytes, signature: length, public } = told;
    let pointless = public.map(|path| {
        let path = path.display();
        format!("{path} holds this signature, which verifies: whoever has that file needs no proof")
    });
    if args.json {
        let mut object = facts_json(key, proof);
        object["proof_bytes"] = json!(bytes);
        object["signature_bytes"] = json!(length);
        object["prove_ms"] = json!(prove_ms);
        object["check_ms"] = json!(check_ms);
        object["pointless"] = json!(pointless);
        object["out"] = json!(args.out.display().to_string());
        return format!("{object}\n");
    }
    let mut text = facts(key, proof);
    let _ = writeln!(text, "{:<19}{} ({bytes} bytes)", "proof", args.out.display());
    let _ = writeln!(text, "{:<19}{prove_ms:.2} ms to prove, {check_ms:.2} ms to check", "time");
    let _ = match pointless {
        Some(why) => writeln!(text, "{:<19}{why}", "pointless"),
        None => writeln!(
            text,
            "{:<19}where the signature may be shown: its {length} bytes verify and say the same",
            "pointless"
        ),
    };
    text
}

/// The lines that stand beside every proof: what it says, what it rests on, what it hides.
pub(crate) fn facts(key: &PublicKey, proof: &SignatureProof) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<19}{value}");
    };
    line("statement", format!("its maker knew a signature by this {} key", key.name()));
    line("", format!("key_sha256: {}", hex::encode(key.id())));
    line("", format!("scheme: {} with {}", proof.scheme().name(), proof.hash().name()));
    line("", format!("digest: {}", hex::encode(proof.digest())));
    if let Scheme::Pss { salt } = proof.scheme() {
        line("", format!("salt: {}", hex::encode(salt)));
    }
    line("", format!("context: {}", shown_context(proof.context())));
    line("program", "none: a sigma protocol needs none".to_string());
    let Security { back_end, proven_bits, conjectured_bits, basis, zero_knowledge } =
        SignatureProof::security(key);
    line("back end", format!("{back_end} {}", env!("CARGO_PKG_VERSION")));
    let proven = proven_bits.map_or("none".to_string(), |bits| format!("{bits} bits"));
    line("security", format!("{proven} proven, {conjectured_bits} bits conjectured ({basis})"));
    line("zero-knowledge", if zero_knowledge { "yes" } else { "no" }.to_string());
    line("hidden", hidden(proof).to_string());
    text
}

/// The same for programs.
pub(crate) fn facts_json(key: &PublicKey, proof: &SignatureProof) -> Value {
    let salt = match proof.scheme() {
        Scheme::Pss { salt } => Some(hex::encode(salt)),
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
        "hidden": hidden(proof),
    })
}

fn hidden(proof: &SignatureProof) -> &'static str {
    match proof.scheme() {
        Scheme::Ecdsa => "half of the signature (s); its point R, key, digest and context are open",
        _ => "the signature; key, digest and context are open",
    }
}

fn shown_context(context: &[u8]) -> String {
    match context.is_empty() {
        true => "none: the proof can be shown on".to_string(),
        false => hex::encode(context),
    }
}

fn usual(key: &PublicKey) -> Hash {
    if key.name() == "P-384" { Hash::Sha384 } else { Hash::Sha256 }
}

fn explained(error: SigmaError) -> CliError {
    let failure = CliError::new(&error);
    match error {
        SigmaError::SignatureInvalid => failure.hint(
            "is it this key's, over exactly this message? --hash and --pss say how it was made",
        ),
        _ => failure,
    }
}

impl HashName {
    fn hash(self) -> Hash {
        match self {
            Self::Sha256 => Hash::Sha256,
            Self::Sha384 => Hash::Sha384,
            Self::Sha512 => Hash::Sha512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_not_taken_for_one_without_the_signature() {
        let absent = std::env::temp_dir().join("confide-no-such-file/message");
        let claimed = Claimed {
            certificate: None,
            key: None,
            message: Some(absent),
            context: Context(Vec::new()),
        };
        assert!(claimed.holds(b"signature").is_err());
    }
}
