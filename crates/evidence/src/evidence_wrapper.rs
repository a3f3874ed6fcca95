//! What evidence of `confide-session/3` consists of, as a collection in a CMW.
//!
//! Quote, claims and batch path stand in the wrapper. Collateral and a GPU's evidence can be longer
//! than a wrapper: they travel next to the authenticator, and the wrapper holds their hashes.

use alloc::{string::String, vec::Vec};

use crate::{
    batch::BATCH_PATH_BYTES_MAX,
    claims::CLAIMS_BYTES_MAX,
    cmw::{Cmw, CmwCollection, CmwLabel, CmwRecord, CmwType, indicator},
    tagged_evidence::QUOTE_BYTES_MAX,
};

/// A member of the collection.
struct Member {
    label: &'static str,
    media: &'static str,
    indicator: u8,
    /// The greatest length of the value, in bytes.
    bytes_max: usize,
}

const QUOTE: Member = Member {
    label: "quote",
    media: "application/vnd.confide.quote",
    indicator: indicator::EVIDENCE,
    bytes_max: QUOTE_BYTES_MAX,
};
const CLAIMS: Member = Member {
    label: "claims",
    media: "application/vnd.confide.claims",
    indicator: indicator::EVIDENCE,
    bytes_max: CLAIMS_BYTES_MAX,
};
const PATH: Member = Member {
    label: "batch-path",
    media: "application/vnd.confide.batch-path",
    indicator: indicator::EVIDENCE,
    bytes_max: BATCH_PATH_BYTES_MAX,
};
const COLLATERAL: Member = Member {
    label: "collateral",
    media: "application/vnd.confide.sha-256",
    indicator: indicator::ENDORSEMENTS,
    bytes_max: 32,
};
const GPU: Member = Member {
    label: "gpu",
    media: "application/vnd.confide.sha-256",
    indicator: indicator::EVIDENCE,
    bytes_max: 32,
};

/// The content of the wrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceWrapper {
    /// The quote, unparsed.
    pub quote: Vec<u8>,
    /// Encoded [`crate::claims::Claims`], unparsed.
    pub claims: Vec<u8>,
    /// The encoded [`crate::batch::BatchPath`], if the quote is shared; unparsed.
    pub batch: Option<Vec<u8>>,
    /// SHA-256 of the collateral next to the authenticator.
    pub collateral: Option<[u8; 32]>,
    /// SHA-256 of the GPU's evidence next to the authenticator.
    pub gpu: Option<[u8; 32]>,
}

impl EvidenceWrapper {
    /// The wrapper as this end writes it.
    pub fn to_cmw(&self) -> Cmw {
        let mut members = Vec::new();
        let mut add = |member: Member, value: &[u8]| {
            let record = Cmw::Record(CmwRecord::new(member.media, value, member.indicator));
            members.push((CmwLabel::Text(member.label.into()), record));
        };
        add(QUOTE, &self.quote);
        add(CLAIMS, &self.claims);
        if let Some(path) = &self.batch {
            add(PATH, path);
        }
        if let Some(hash) = &self.collateral {
            add(COLLATERAL, hash);
        }
        if let Some(hash) = &self.gpu {
            add(GPU, hash);
        }
        Cmw::Collection(CmwCollection { kind: None, members })
    }

    /// Reads the members of a wrapper, in any order; no others are accepted.
    ///
    /// # Errors
    /// [`EvidenceWrapperError`] names the first rule that the wrapper breaks.
    pub fn from_cmw(cmw: Cmw) -> Result<Self, EvidenceWrapperError> {
        let Cmw::Collection(CmwCollection { kind: None, members }) = cmw else {
            return Err(EvidenceWrapperError::Form);
        };
        let (mut quote, mut claims, mut batch) = (None, None, None);
        let (mut collateral, mut gpu) = (None, None);
        for (label, member) in members {
            let CmwLabel::Text(label) = label else { return Err(EvidenceWrapperError::Form) };
            match label.as_str() {
                "quote" => quote = Some(read_member(QUOTE, member)?),
                "claims" => claims = Some(read_member(CLAIMS, member)?),
                "batch-path" => batch = Some(read_member(PATH, member)?),
                "collateral" => collateral = Some(read_hash(COLLATERAL, member)?),
                "gpu" => gpu = Some(read_hash(GPU, member)?),
                _ => return Err(EvidenceWrapperError::Unknown { label }),
            }
        }
        let missing = |label| EvidenceWrapperError::Missing { label };
        Ok(Self {
            quote: quote.ok_or(missing("quote"))?,
            claims: claims.ok_or(missing("claims"))?,
            batch,
            collateral,
            gpu,
        })
    }
}

/// Why a wrapper does not hold evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceWrapperError {
    /// The wrapper is a record, has a type of its own, or has labels that are numbers.
    #[error("wanted a collection without a type, with labels of text")]
    Form,
    /// A member is missing.
    #[error("member {label} is missing")]
    Missing {
        /// The label.
        label: &'static str,
    },
    /// A member is not one of this profile's.
    #[error("member {label:?} is unknown")]
    Unknown {
        /// The label.
        label: String,
    },
    /// A member is a collection, or has another media type or indicator.
    #[error("member {label} is not a record of {media}")]
    Type {
        /// The label.
        label: &'static str,
        /// The media type that it should have.
        media: &'static str,
    },
    /// A member has a length out of its bounds.
    #[error("member {label} is {got} bytes, wanted 1 to {wanted}, a hash exactly 32")]
    MemberLength {
        /// The label.
        label: &'static str,
        /// The limit in bytes.
        wanted: usize,
        /// The length that came.
        got: usize,
    },
    /// The bulk next to the authenticator is not what the wrapper's hash names.
    #[error("{label} next to the authenticator is not what its CMW names")]
    Bulk {
        /// `collateral` or `GPU evidence`.
        label: &'static str,
    },
}

fn read_member(wanted: Member, member: Cmw) -> Result<Vec<u8>, EvidenceWrapperError> {
    let Member { label, media, bytes_max, .. } = wanted;
    let mismatch = EvidenceWrapperError::Type { label, media };
    let Cmw::Record(CmwRecord { content: CmwType::MediaType(name), value, indicator }) = member
    else {
        return Err(mismatch);
    };
    if name != media || indicator != Some(wanted.indicator) {
        return Err(mismatch);
    }
    match value.len() {
        got if got == 0 || got > bytes_max => {
            Err(EvidenceWrapperError::MemberLength { label, wanted: bytes_max, got })
        }
        _ => Ok(value),
    }
}

fn read_hash(wanted: Member, member: Cmw) -> Result<[u8; 32], EvidenceWrapperError> {
    let label = wanted.label;
    let value = read_member(wanted, member)?;
    let got = value.len();
    value.try_into().map_err(|_| EvidenceWrapperError::MemberLength { label, wanted: 32, got })
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::cmw::parse_cmw;

    fn wrapper() -> EvidenceWrapper {
        EvidenceWrapper {
            quote: b"quote".to_vec(),
            claims: b"claims".to_vec(),
            batch: Some(b"path".to_vec()),
            collateral: Some([1; 32]),
            gpu: Some([2; 32]),
        }
    }

    #[test]
    fn a_wrapper_comes_back_as_it_was() {
        let bare = EvidenceWrapper { batch: None, collateral: None, gpu: None, ..wrapper() };
        for wrapper in [wrapper(), bare] {
            let read = parse_cmw(&wrapper.to_cmw().encode()).unwrap();
            assert_eq!(EvidenceWrapper::from_cmw(read), Ok(wrapper));
        }
    }

    #[test]
    fn the_longest_wrapper_is_as_long_as_the_specification_says() {
        let longest = EvidenceWrapper {
            quote: vec![1; QUOTE_BYTES_MAX],
            claims: vec![1; CLAIMS_BYTES_MAX],
            batch: Some(vec![1; BATCH_PATH_BYTES_MAX]),
            ..wrapper()
        };
        assert_eq!(longest.to_cmw().encode().len(), 34_441);
    }

    #[test]
    fn other_members_types_and_lengths_are_refused() {
        let refuse = |change: &dyn Fn(&mut CmwCollection)| {
            let Cmw::Collection(mut collection) = wrapper().to_cmw() else { unreachable!() };
            change(&mut collection);
            EvidenceWrapper::from_cmw(Cmw::Collection(collection)).unwrap_err()
        };
        let record = |media: &str, value: &[u8]| Cmw::Record(CmwRecord::new(media, value, 4));
        let unknown = CmwLabel::Text("other".into());
        let got = refuse(&|c| c.members.push((unknown.clone(), record("a/b", b"v"))));
        assert_eq!(got, EvidenceWrapperError::Unknown { label: "other".into() });
        let got = refuse(&|c| c.members.truncate(1));
        assert_eq!(got, EvidenceWrapperError::Missing { label: "claims" });
        let got = refuse(&|c| c.kind = Some("1.2".into()));
        assert_eq!(got, EvidenceWrapperError::Form);
        let got = refuse(&|c| c.members[0].1 = record("a/b", b"v"));
        assert!(matches!(got, EvidenceWrapperError::Type { label: "quote", .. }));
        let got = refuse(&|c| c.members[0].1 = record(QUOTE.media, b""));
        assert!(matches!(got, EvidenceWrapperError::MemberLength { label: "quote", got: 0, .. }));
        let got = refuse(&|c| c.members[4].1 = record(GPU.media, b"short"));
        assert!(matches!(got, EvidenceWrapperError::MemberLength { label: "gpu", got: 5, .. }));
    }
}
