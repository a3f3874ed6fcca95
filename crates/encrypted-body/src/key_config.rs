//! Key configurations (RFC 9458 section 3.1), which say what to encrypt with.

use crate::{
    cipher::BodyCipher, error::EncryptedBodyError, kem::BodyKem, public_key::BodyPublicKey,
};

/// HKDF-SHA256 and AES-256-GCM, by HPKE's identifiers.
const SUITE: [u8; 4] = [0, 1, 0, 2];
/// HKDF-SHA256, by HPKE's identifier.
pub(crate) const KDF: u16 = 0x0001;
/// The identifier of the only key of a server; EHBP does not send it.
const KEY_ID: u8 = 0;
/// The largest number of configurations that are read.
const CONFIGS_MAX: usize = 16;

/// The configuration of a key, in EHBP's form: without a length in front.
pub fn encode_key_config(key: &BodyPublicKey) -> Vec<u8> {
    encode_config(KEY_ID, key, &SUITE)
}

/// The configurations of keys for OHTTP, each with its length in front, the preferred one first
/// (RFC 9458 section 3.2).
pub fn encode_ohttp_keys<'a>(keys: impl IntoIterator<Item = &'a BodyPublicKey>) -> Vec<u8> {
    let mut list = Vec::new();
    let suites: Vec<u8> = BodyCipher::ALL
        .into_iter()
        .flat_map(|cipher| [&KDF.to_be_bytes()[..], &cipher.id().to_be_bytes()].concat())
        .collect();
    for key in keys {
        let config = encode_config(key.ohttp_key_id(), key, &suites);
        list.extend((config.len() as u16).to_be_bytes());
        list.extend(config);
    }
    list
}

fn encode_config(key_id: u8, key: &BodyPublicKey, suites: &[u8]) -> Vec<u8> {
    let mut config = vec![key_id];
    config.extend(key.kem().id().to_be_bytes());
    config.extend(key.as_bytes());
    config.extend((suites.len() as u16).to_be_bytes());
    config.extend(suites);
    config
}

/// Reads the keys of one configuration without a length in front, as EHBP has it, or of a list of
/// configurations with their lengths, as RFC 9458 has it. Those of other kinds are left out.
///
/// # Errors
/// [`EncryptedBodyError::KeyConfig`] if the bytes have neither form, or no key is of a known kind.
pub fn parse_key_configs(bytes: &[u8]) -> Result<Vec<BodyPublicKey>, EncryptedBodyError> {
    let keys = match parse_config(bytes) {
        Ok(Some(key)) => vec![key],
        _ => parse_list(bytes)?,
    };
    if keys.is_empty() { Err(EncryptedBodyError::KeyConfig) } else { Ok(keys) }
}

fn parse_list(mut bytes: &[u8]) -> Result<Vec<BodyPublicKey>, EncryptedBodyError> {
    let mut keys = Vec::new();
    for _ in 0..CONFIGS_MAX {
        if bytes.is_empty() {
            return Ok(keys);
        }
        let length = take_u16(&mut bytes)?;
        keys.extend(parse_config(take(&mut bytes, length.into())?)?);
    }
    if bytes.is_empty() { Ok(keys) } else { Err(EncryptedBodyError::KeyConfig) }
}

/// Reads one configuration; `None` for a kind that this package does not know.
fn parse_config(mut bytes: &[u8]) -> Result<Option<BodyPublicKey>, EncryptedBodyError> {
    take(&mut bytes, 1)?;
    let id = take_u16(&mut bytes)?;
    let Some(kem) = BodyKem::from_id(id) else {
        // The length of its key is not known.
        return Ok(None);
    };
    let key = take(&mut bytes, kem.public_key_bytes())?;
    let length = take_u16(&mut bytes)?;
    let suites = take(&mut bytes, length.into())?;
    if !bytes.is_empty() || !suites.len().is_multiple_of(SUITE.len()) {
        return Err(EncryptedBodyError::KeyConfig);
    }
    match suites.chunks(SUITE.len()).any(|suite| suite == SUITE) {
        true => {
            let key = BodyPublicKey::from_bytes(kem, key);
            key.map(Some).map_err(|_| EncryptedBodyError::KeyConfig)
        }
        false => Ok(None),
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], EncryptedBodyError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(EncryptedBodyError::KeyConfig)?;
    *bytes = rest;
    Ok(taken)
}

fn take_u16(bytes: &mut &[u8]) -> Result<u16, EncryptedBodyError> {
    let taken = take(bytes, 2)?;
    Ok(u16::from_be_bytes([taken[0], taken[1]]))
}
