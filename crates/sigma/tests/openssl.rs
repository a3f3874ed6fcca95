//! Keys, certificates and signatures that the `openssl` program makes during the test, proved and
//! checked.

use std::{fs, path::PathBuf, process::Command};

use confide_sigma::{HashFunction, PublicKey, SigmaError, SignatureProof, SignatureScheme};

const MESSAGE: &[u8] = b"signed by openssl, proved by confide";

/// A key of openssl's in a folder of its own.
struct Signer {
    folder: PathBuf,
}

impl Signer {
    /// Makes a key; prints a line and returns `None` if there is no openssl.
    fn new(name: &str, parameter: &str) -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: no openssl");
            return None;
        }
        let name = format!("confide-sigma-{}-{name}", std::process::id());
        let signer = Self { folder: std::env::temp_dir().join(name) };
        fs::create_dir_all(&signer.folder).unwrap();
        let algorithm = if parameter.starts_with("rsa") { "RSA" } else { "EC" };
        let mut make =
            vec!["genpkey", "-algorithm", algorithm, "-pkeyopt", parameter, "-out", "key"];
        if parameter.ends_with(":2049") {
            // With two primes openssl makes even lengths only.
            make.extend(["-pkeyopt", "rsa_keygen_primes:3"]);
        }
        signer.run(&make);
        signer.run(&["req", "-new", "-x509", "-key", "key", "-subj", "/CN=signer", "-out", "pem"]);
        signer.run(&["x509", "-in", "pem", "-outform", "DER", "-out", "der"]);
        signer.run(&["pkey", "-in", "key", "-pubout", "-out", "spki.pem"]);
        fs::write(signer.folder.join("message"), MESSAGE).unwrap();
        Some(signer)
    }

    fn sign(&self, hash: HashFunction, options: &[&str]) -> Vec<u8> {
        let digest = format!("-{}", hash.name().to_lowercase().replace('-', ""));
        let mut command = vec!["dgst", &digest, "-sign", "key", "-out", "signature"];
        for option in options {
            command.extend(["-sigopt", option]);
        }
        command.push("message");
        self.run(&command);
        self.file("signature")
    }

    fn key(&self) -> PublicKey {
        PublicKey::from_certificate(&self.file("pem")).unwrap()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let output =
            Command::new("openssl").args(arguments).current_dir(&self.folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes and reads the proof as a file, and checks that it holds for its statement alone.
fn walk(key: &PublicKey, proof: SignatureProof) {
    let read = SignatureProof::from_bytes(&proof.to_bytes()).unwrap();
    assert_eq!(read.verify(key, MESSAGE, b"walk"), Ok(()));
    assert_eq!(read.verify(key, b"another", b"walk"), Err(SigmaError::OtherMessage));
    assert_eq!(read.verify(key, MESSAGE, b"another"), Err(SigmaError::OtherContext));
}

#[test]
fn rsa_signatures_of_every_length_padding_and_hash_are_proved() {
    for bits in [2048, 2049, 3072, 4096] {
        let parameter = format!("rsa_keygen_bits:{bits}");
        let Some(signer) = Signer::new(&parameter, &parameter) else { return };
        let key = signer.key();
        assert_eq!(key.name(), format!("RSA-{bits}"));
        for hash in [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512] {
            let digest = hash.digest(MESSAGE);
            let signature = signer.sign(hash, &[]);
            let proof =
                SignatureProof::prove_pkcs1(&key, hash, &digest, &signature, b"walk").unwrap();
            walk(&key, proof);
            for salt in ["rsa_pss_saltlen:digest", "rsa_pss_saltlen:0", "rsa_pss_saltlen:max"] {
                let signature = signer.sign(hash, &["rsa_padding_mode:pss", salt]);
                let proof =
                    SignatureProof::prove_pss(&key, hash, &digest, &signature, b"walk").unwrap();
                assert!(matches!(proof.scheme(), SignatureScheme::Pss { .. }));
                walk(&key, proof);
            }
        }
    }
}

#[test]
fn a_proof_for_rsa_2048_is_as_short_as_promised() {
    let Some(signer) = Signer::new("short", "rsa_keygen_bits:2048") else { return };
    let signature = signer.sign(HashFunction::Sha256, &[]);
    let digest = HashFunction::Sha256.digest(MESSAGE);
    let proof =
        SignatureProof::prove_pkcs1(&signer.key(), HashFunction::Sha256, &digest, &signature, b"");
    assert_eq!(proof.unwrap().to_bytes().len(), 2149);
}

#[test]
fn ecdsa_signatures_of_both_curves_are_proved() {
    for curve in ["P-256", "P-384"] {
        let Some(signer) = Signer::new(curve, &format!("ec_paramgen_curve:{curve}")) else {
            return;
        };
        let key = signer.key();
        assert_eq!(key.name(), curve);
        for hash in [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512] {
            let signature = signer.sign(hash, &[]);
            let digest = hash.digest(MESSAGE);
            let proof =
                SignatureProof::prove_ecdsa(&key, hash, &digest, &signature, b"walk").unwrap();
            walk(&key, proof);
        }
    }
}

#[test]
fn certificate_spki_and_their_encodings_give_one_key_named_as_openssl_hashes_it() {
    for parameter in ["rsa_keygen_bits:2048", "ec_paramgen_curve:P-256", "ec_paramgen_curve:P-384"]
    {
        let Some(signer) = Signer::new(&format!("spki-{parameter}"), parameter) else { return };
        let key = signer.key();
        assert_eq!(PublicKey::from_certificate(&signer.file("der")).as_ref(), Ok(&key));
        assert_eq!(PublicKey::from_spki(&signer.file("spki.pem")).as_ref(), Ok(&key));
        signer.run(&["pkey", "-in", "key", "-pubout", "-outform", "DER", "-out", "spki"]);
        let spki = signer.file("spki");
        assert_eq!(PublicKey::from_spki(&spki).as_ref(), Ok(&key));
        assert_eq!(key.id().to_vec(), HashFunction::Sha256.digest(&spki));
    }
}

#[test]
fn keys_that_are_not_proved_are_refused_by_name() {
    let Some(small) = Signer::new("small", "rsa_keygen_bits:1024") else { return };
    let got = PublicKey::from_certificate(&small.file("pem"));
    assert_eq!(got, Err(SigmaError::ModulusLength { got: 1024 }));
    let Some(curve) = Signer::new("curve", "ec_paramgen_curve:secp256k1") else { return };
    let got = PublicKey::from_certificate(&curve.file("pem"));
    assert!(matches!(got, Err(SigmaError::Unsupported { what: "curve", .. })));
    small.run(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-pkeyopt",
        "rsa_keygen_pubexp:3",
        "-out",
        "three",
    ]);
    small.run(&["pkey", "-in", "three", "-pubout", "-out", "three.pem"]);
    let got = PublicKey::from_spki(&small.file("three.pem"));
    assert_eq!(got, Err(SigmaError::Exponent { got: "03".to_string() }));
}

#[test]
fn a_key_of_another_signer_is_refused() {
    let Some(one) = Signer::new("one", "ec_paramgen_curve:P-256") else { return };
    let Some(other) = Signer::new("other", "ec_paramgen_curve:P-256") else { return };
    let (digest, signature) =
        (HashFunction::Sha256.digest(MESSAGE), one.sign(HashFunction::Sha256, &[]));
    let proof =
        SignatureProof::prove_ecdsa(&one.key(), HashFunction::Sha256, &digest, &signature, b"")
            .unwrap();
    assert_eq!(proof.verify(&other.key(), MESSAGE, b""), Err(SigmaError::OtherKey));
    let foreign =
        SignatureProof::prove_ecdsa(&other.key(), HashFunction::Sha256, &digest, &signature, b"");
    assert_eq!(foreign.map(|_| ()), Err(SigmaError::SignatureInvalid));
}

#[test]
fn files_that_are_no_keys_are_refused() {
    for bytes in [&b""[..], b"0", b"-----BEGIN CERTIFICATE-----", &[0x30; 400], &[0xff; 9]] {
        assert!(PublicKey::from_certificate(bytes).is_err());
        assert!(PublicKey::from_spki(bytes).is_err());
        assert!(PublicKey::from_jwk(bytes).is_err());
    }
}

#[test]
fn a_jwk_gives_the_key_it_holds_and_a_private_one_is_refused() {
    // The generator of P-256, whose coordinates SEC 2 lists.
    let x = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY";
    let y = "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU";
    let jwk = format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"g"}}"#);
    assert_eq!(PublicKey::from_jwk(jwk.as_bytes()).unwrap().name(), "P-256");
    let private = jwk.replace("\"kid\":\"g\"", "\"d\":\"AQ\"");
    let got = PublicKey::from_jwk(private.as_bytes());
    assert!(matches!(got, Err(SigmaError::Unsupported { what: "JWK", .. })));
    let twice = jwk.replace("\"kid\":\"g\"", "\"kty\":\"RSA\"");
    assert_eq!(
        PublicKey::from_jwk(twice.as_bytes()),
        Err(SigmaError::Malformed { what: "JWK" }),
        "a member given twice"
    );
    let off = jwk.replace("T-NC", "T-ND");
    let got = PublicKey::from_jwk(off.as_bytes());
    assert_eq!(got, Err(SigmaError::NotOnCurve { what: "public key" }));
}
