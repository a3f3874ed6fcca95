//! The saved state from which the same simulated attester is made again.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::{
    error::FakeError,
    options::{FakeAttesterOptions, Mode, Tee},
    variant::SimulatedPlatform,
};

/// The name of the state's file in that folder.
pub const STATE_FILE: &str = "simulated-attester.json";

/// The longest state in bytes: it has some 500, and a longer file is another one.
const STATE_BYTES_MAX: u64 = 4096;

const NOTE: &str =
    "SIMULATED: made by software, protects nothing; anyone who reads the seed can sign";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedState {
    simulated: bool,
    note: String,
    tee: Tee,
    debug: bool,
    issued_at: u64,
    mode: Mode,
    /// The variant; absent in states of older versions.
    #[serde(default)]
    variant: SimulatedPlatform,
    /// Whether there is a simulated GPU; absent in states of older versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gpu: bool,
    seed: String,
}

impl Drop for SavedState {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

pub(crate) fn save(
    dir: &Path,
    options: &FakeAttesterOptions,
    variant: &SimulatedPlatform,
    gpu: bool,
) -> Result<(), FakeError> {
    let state = SavedState {
        simulated: true,
        note: NOTE.into(),
        tee: options.tee,
        debug: options.debug,
        issued_at: options.issued_at,
        mode: options.mode,
        variant: *variant,
        gpu,
        seed: hex::encode(options.seed),
    };
    let text = Zeroizing::new(serde_json::to_string_pretty(&state)? + "\n");
    let path = dir.join(STATE_FILE);
    write_private(&path, text.as_bytes()).map_err(|source| FakeError::File {
        action: "write",
        path,
        source,
    })
}

/// Reads options, variant and whether there is a GPU.
pub(crate) fn load(
    dir: &Path,
) -> Result<(FakeAttesterOptions, SimulatedPlatform, bool), FakeError> {
    let path = dir.join(STATE_FILE);
    let mut text = Zeroizing::new(String::new());
    let read = fs::File::open(&path)
        .and_then(|file| file.take(STATE_BYTES_MAX + 1).read_to_string(&mut text));
    let refuse = |reason: String| FakeError::State { path: path.clone(), reason };
    match read {
        Ok(length) if length as u64 > STATE_BYTES_MAX => {
            return Err(refuse(format!("wanted at most {STATE_BYTES_MAX} bytes, got more")));
        }
        Ok(_) => {}
        Err(source) => return Err(FakeError::File { action: "read", path, source }),
    }
    let state: SavedState =
        serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    if !state.simulated {
        return Err(refuse("wanted simulated to be true, got false".into()));
    }
    let mut seed = [0; 32];
    hex::decode_to_slice(&state.seed, &mut seed)
        .map_err(|error| refuse(format!("seed: wanted 64 hexadecimal digits: {error}")))?;
    let SavedState { tee, debug, issued_at, mode, variant, .. } = &state;
    let options =
        FakeAttesterOptions { seed, tee: *tee, debug: *debug, issued_at: *issued_at, mode: *mode };
    seed.zeroize();
    Ok((options, *variant, state.gpu))
}

/// Creates or replaces a file that only its owner may read.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    // A file that was there keeps its mode when it is opened.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    file.write_all(bytes)
}
