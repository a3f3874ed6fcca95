//! What an attested end says of the weights of the models behind it.

use alloc::{format, string::String, vec::Vec};
use core::fmt;

use minicbor::{Decoder, data::Type};

use crate::cbor::Writer;

/// The largest number of different weights in a claim.
pub const WEIGHTS_MAX: usize = 8;

/// The element that stands for weights which the attested end did not measure.
pub const NOT_MEASURED: &str = "not measured";

/// How the attested end measured weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightsSource {
    /// It read and hashed the files when it started. Afterwards it looks for changes that the file
    /// system shows, and nothing holds what is read to the digest.
    HashedAtStart = 1,
}

impl WeightsSource {
    const ALL: [Self; 1] = [Self::HashedAtStart];

    /// The source with this text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == text)
    }

    /// The text for people and for JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HashedAtStart => "hashed at start",
        }
    }
}

/// The weights of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeasuredWeights {
    /// How they were measured.
    pub source: WeightsSource,
    /// Their SHA-256, as `docs/weights.md` describes it.
    pub digest: [u8; 32],
}

impl fmt::Display for MeasuredWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", hex::encode(self.digest), self.source.as_str())
    }
}

/// The weights of all models that may answer, by the attested end's own measurement.
///
/// Weights may be answered with only if they are listed here; a claim that is not complete leaves
/// open which others may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightsClaim {
    measured: Vec<MeasuredWeights>,
    is_complete: bool,
}

impl WeightsClaim {
    /// The claim of an end with these model servers, `None` for one whose weights it did not
    /// measure. There is no claim if none was measured.
    pub fn from_servers(
        servers: impl IntoIterator<Item = Option<MeasuredWeights>>,
    ) -> Option<Self> {
        let (mut measured, mut is_complete) = (Vec::new(), true);
        for server in servers {
            match server {
                Some(weights) => measured.push(weights),
                None => is_complete = false,
            }
        }
        measured.sort_unstable();
        measured.dedup();
        (!measured.is_empty()).then_some(Self { measured, is_complete })
    }

    /// The measured weights, sorted, each once.
    pub fn measured_weights(&self) -> &[MeasuredWeights] {
        &self.measured
    }

    /// Whether the weights of every model that may answer were measured.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Each element in words: the digests with their sources, and [`NOT_MEASURED`].
    pub fn to_texts(&self) -> impl Iterator<Item = String> {
        let others = (!self.is_complete).then(|| NOT_MEASURED.into());
        self.measured.iter().map(|weights| format!("{weights}")).chain(others)
    }

    /// What is said of weights, in words; without a claim, that they were not measured.
    pub fn describe(claim: Option<&Self>) -> String {
        match claim {
            Some(claim) => claim.to_texts().collect::<Vec<_>>().join(", "),
            None => NOT_MEASURED.into(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), WeightsClaimFault> {
        match self.measured.len() {
            1..=WEIGHTS_MAX => Ok(()),
            got => Err(WeightsClaimFault::Count { got }),
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        let others = u64::from(!self.is_complete);
        writer.array(self.measured.len() as u64 + others);
        for MeasuredWeights { source, digest } in &self.measured {
            writer.array(2).uint(*source as u64).bytes(digest);
        }
        if !self.is_complete {
            writer.text(NOT_MEASURED);
        }
    }

    /// Reads a claim whose elements are in order.
    pub(crate) fn read(decoder: &mut Decoder<'_>) -> Result<Self, WeightsClaimFault> {
        let malformed = |decoder: &Decoder<'_>, wanted| WeightsClaimFault::Malformed {
            position: decoder.position(),
            wanted,
        };
        let count = decoder.array().ok().flatten();
        let count = count.ok_or_else(|| malformed(decoder, "an array of definite length"))?;
        if count > WEIGHTS_MAX as u64 + 1 {
            let got = usize::try_from(count).unwrap_or(usize::MAX);
            return Err(WeightsClaimFault::Count { got });
        }
        let (mut measured, mut is_complete) = (Vec::new(), true);
        for _ in 0..count {
            if matches!(decoder.datatype(), Ok(Type::String)) {
                if decoder.str().ok() != Some(NOT_MEASURED) || !is_complete {
                    return Err(malformed(decoder, "`not measured` once"));
                }
                is_complete = false;
                continue;
            }
            if !matches!(decoder.array(), Ok(Some(2))) {
                return Err(malformed(decoder, "an array of two"));
            }
            let number = decoder.u64().ok();
            let source =
                WeightsSource::ALL.into_iter().find(|source| number == Some(*source as u64));
            let source = source.ok_or_else(|| malformed(decoder, "a known source of weights"))?;
            let digest = decoder.bytes().ok().and_then(|bytes| bytes.try_into().ok());
            let digest = digest.ok_or_else(|| malformed(decoder, "a digest of 32 bytes"))?;
            measured.push(MeasuredWeights { source, digest });
        }
        if !measured.is_sorted_by(|one, next| one < next) {
            return Err(WeightsClaimFault::Unsorted);
        }
        let claim = Self { measured, is_complete };
        claim.check()?;
        Ok(claim)
    }
}

/// What is wrong with a claim about weights.
pub(crate) enum WeightsClaimFault {
    /// It is no CBOR of the wanted types at this byte.
    Malformed { position: usize, wanted: &'static str },
    /// It has none, or more than [`WEIGHTS_MAX`].
    Count { got: usize },
    /// Its measurements are not in ascending order, each once.
    Unsorted,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(byte: u8) -> MeasuredWeights {
        MeasuredWeights { source: WeightsSource::HashedAtStart, digest: [byte; 32] }
    }

    #[test]
    fn a_claim_lists_each_measurement_once_and_says_if_there_are_others() {
        let claim = |servers: &[Option<u8>]| {
            WeightsClaim::from_servers(servers.iter().map(|byte| byte.map(weights)))
        };
        assert_eq!(claim(&[]), None);
        assert_eq!(claim(&[None, None]), None);
        let one = claim(&[Some(7), Some(7)]).unwrap();
        assert_eq!((one.measured_weights(), one.is_complete()), (&[weights(7)][..], true));
        let some = claim(&[Some(9), None, Some(7)]).unwrap();
        assert_eq!(some.measured_weights(), [weights(7), weights(9)]);
        assert!(!some.is_complete());
        let texts: Vec<String> = some.to_texts().collect();
        assert_eq!(texts[0], format!("{} (hashed at start)", "07".repeat(32)));
        assert_eq!(texts[2], "not measured");
        assert_eq!(WeightsClaim::describe(Some(&some)), texts.join(", "));
        assert_eq!(WeightsClaim::describe(None), "not measured");
    }
}
