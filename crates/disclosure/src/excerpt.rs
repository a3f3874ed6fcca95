//! Opens parts of the bodies of a receipt, as a holder names them (`docs/receipts.md`, "Excerpts").

use confide_transcript::{
    CommittedDirection, Direction, DirectionCommitment, OpenedBody, Seed, TranscriptError,
};

use crate::name::Selector;

/// The reason why parts of a body cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ExcerptError {
    /// A wish names what a receipt does not commit to.
    #[error("{name} cannot be shown: a receipt commits to bytes and lengths of bodies only")]
    Field {
        /// The name that was wanted.
        name: String,
    },
    /// A range is not within the body, or the body is too long.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// Body or secret are not those of the receipt.
    #[error("the {} is not the one to which the receipt commits, or the secret is another one", .direction.as_str())]
    Differs {
        /// The direction of the body.
        direction: Direction,
    },
}

/// Opens what `wishes` name of one body.
///
/// # Errors
///
/// [`ExcerptError::Differs`] if `commitment` is not to this body under this seed;
/// [`ExcerptError::Transcript`] for a range beyond the body; [`ExcerptError::Field`] for a wish
/// that is neither a range nor a length.
pub fn open_body(
    seed: &Seed,
    direction: Direction,
    body: &[u8],
    commitment: &DirectionCommitment,
    wishes: &[Selector],
) -> Result<OpenedBody, ExcerptError> {
    let committed = CommittedDirection::new(seed, direction, body)?;
    if committed.commitment() != *commitment {
        return Err(ExcerptError::Differs { direction });
    }
    let (mut ranges, mut length) = (Vec::new(), None);
    for wish in wishes {
        match wish {
            Selector::Bytes(of, range) if *of == direction => ranges.push(range.clone()),
            Selector::Length(of) if *of == direction => length = Some(committed.open_length()),
            Selector::Bytes(..) | Selector::Length(_) => {}
            Selector::Field(name) => return Err(ExcerptError::Field { name: name.clone() }),
        }
    }
    let bytes = match ranges.is_empty() {
        true => None,
        false => Some(committed.open(&ranges)?),
    };
    Ok(OpenedBody { bytes, length })
}

#[cfg(test)]
mod tests {
    use confide_transcript::{Excerpt, OpeningError, ShownBytes};

    use super::*;

    const BODY: &[u8] = &[b'x'; 300];

    fn excerpt(wishes: &[&str]) -> (Excerpt, DirectionCommitment) {
        let seed = Seed::of_receipt(&[1; 32], "rcpt-1");
        let wishes: Vec<_> = wishes.iter().map(|wish| Selector::parse(wish).unwrap()).collect();
        let committed = CommittedDirection::new(&seed, Direction::Response, BODY).unwrap();
        let commitment = committed.commitment();
        let response = open_body(&seed, Direction::Response, BODY, &commitment, &wishes);
        let response = response.unwrap();
        (Excerpt { receipt: b"{}".to_vec(), response, ..Excerpt::default() }, commitment)
    }

    #[test]
    fn shown_parts_are_those_of_the_committed_body_and_of_no_other() {
        let (excerpt, commitment) =
            excerpt(&["response.bytes:70-80", "response.length", "request.length"]);
        let read = Excerpt::decode(&excerpt.encode()).unwrap();
        assert_eq!(read, excerpt);
        let (shown, length) = read.response.check(Direction::Response, &commitment).unwrap();
        assert_eq!(shown, [ShownBytes { start: 64, bytes: vec![b'x'; 64] }]);
        assert_eq!((length, read.request.is_empty()), (Some(300), true));
        let mut changed = read.clone();
        changed.response.bytes.as_mut().unwrap().leaves[0].chunk[3] = b'y';
        let refused = changed.response.check(Direction::Response, &commitment);
        assert_eq!(refused, Err(OpeningError::Root { what: "response bytes" }));
        let mut changed = read.clone();
        changed.response.length.as_mut().unwrap().length = 301;
        let refused = changed.response.check(Direction::Response, &commitment);
        assert_eq!(refused, Err(OpeningError::Length { what: "response" }));
        assert!(read.response.check(Direction::Request, &commitment).is_err());
    }

    #[test]
    fn another_body_secret_or_receipt_opens_nothing() {
        let (_, commitment) = excerpt(&["response.length"]);
        for (secret, id, body) in
            [([2; 32], "rcpt-1", BODY), ([1; 32], "rcpt-2", BODY), ([1; 32], "rcpt-1", &BODY[1..])]
        {
            let seed = Seed::of_receipt(&secret, id);
            let opened = open_body(&seed, Direction::Response, body, &commitment, &[]);
            assert!(matches!(opened, Err(ExcerptError::Differs { .. })));
        }
        let seed = Seed::of_receipt(&[1; 32], "rcpt-1");
        for (wish, is_field) in [("response./choices", true), ("response.bytes:299-301", false)] {
            let wish = [Selector::parse(wish).unwrap()];
            let refused = open_body(&seed, Direction::Response, BODY, &commitment, &wish);
            assert_eq!(matches!(refused, Err(ExcerptError::Field { .. })), is_field);
            assert!(refused.is_err());
        }
    }

    #[test]
    fn a_file_has_one_encoding_and_no_other_bytes_are_read() {
        let (excerpt, _) = excerpt(&["response.bytes:0-1", "response.length"]);
        let bytes = excerpt.encode();
        for length in 0..bytes.len() {
            assert!(Excerpt::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Excerpt::decode(&[&bytes[..], b"\0"].concat()).is_err());
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            if let Ok(other) = Excerpt::decode(&changed) {
                assert_eq!(other.encode(), changed);
            }
        }
    }
}
