//! Openings of a transcript hold for what was committed to, and for nothing else.

use super::*;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 7 + place / 256) as u8).collect()
}

fn seed() -> Seed {
    Seed::from_bytes([9; 32])
}

fn open_range(committed: &CommittedDirection<'_>, range: Range<u64>) -> TranscriptOpening {
    committed.open(std::slice::from_ref(&range)).unwrap()
}

/// The tree of RFC 6962, computed in the plain way.
fn slow_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len() / 2);
            let digest = Sha256::new().chain_update([1]).chain_update(slow_root(left));
            digest.chain_update(slow_root(right)).finalize().into()
        }
    }
}

#[test]
fn the_root_is_that_of_the_definition() {
    for length in [0, 1, 63, 64, 65, 1023, 1024, 1025, 5000] {
        let (seed, bytes) = (seed(), bytes(length));
        let committed = CommittedDirection::new(&seed, Direction::Response, &bytes).unwrap();
        let commitment = committed.commitment();
        let count = length.div_ceil(64).next_power_of_two().max(16);
        let leaf = |index: usize| -> Hash {
            let derived: [u8; 32] = Sha256::new()
                .chain_update(seed.secret())
                .chain_update(b"confide salt v1")
                .chain_update([2])
                .chain_update((index as u32 / 2).to_be_bytes())
                .finalize()
                .into();
            let salt = &derived[16 * (index % 2)..][..16];
            Sha256::new()
                .chain_update([0, 2])
                .chain_update((index as u32).to_be_bytes())
                .chain_update(salt)
                .chain_update(bytes.chunks(64).nth(index).unwrap_or_default())
                .finalize()
                .into()
        };
        let leaves: Vec<Hash> = (0..count).map(leaf).collect();
        assert_eq!(commitment.root, slow_root(&leaves), "{length}");
        assert_eq!(commitment.bucket_bytes(), 64 * count as u64);
        let opened = committed.open_length().check(Direction::Response, &commitment);
        assert_eq!(opened, Ok(length as u64));
    }
}

#[test]
fn ranges_open_in_whole_chunks_and_nothing_else() {
    let (seed, bytes) = (seed(), bytes(5000));
    let committed = CommittedDirection::new(&seed, Direction::Request, &bytes).unwrap();
    let opening = committed.open(&[100..200, 4990..5000, 128..130]).unwrap();
    let shown = opening.check(Direction::Request, &committed.commitment()).unwrap();
    let places: Vec<_> = shown.iter().map(|piece| (piece.start, piece.bytes.len())).collect();
    assert_eq!(places, [(64, 192), (4928, 72)]);
    for piece in &shown {
        assert_eq!(piece.bytes, bytes[piece.start as usize..][..piece.bytes.len()]);
    }
    for wrong in [0..0, Range { start: 5, end: 4 }, 0..5001, 5000..5001, u64::MAX - 1..u64::MAX] {
        assert!(committed.open(std::slice::from_ref(&wrong)).is_err());
    }
}

#[test]
fn one_hundred_bytes_of_64_kib_open_in_one_kib() {
    let (seed, bytes) = (seed(), bytes(64 << 10));
    let committed = CommittedDirection::new(&seed, Direction::Response, &bytes).unwrap();
    for start in [0, 64 * 511 + 60, 65_436] {
        let opening = open_range(&committed, start..start + 100);
        let mut writer = Writer::default();
        opening.write(&mut writer);
        let written = writer.finish();
        assert!(written.len() <= 1024, "{}", written.len());
        let mut reader = Reader::new(&written, b"", "").unwrap();
        assert_eq!(TranscriptOpening::read(&mut reader), Ok(opening));
    }
}

#[test]
fn leaves_of_another_direction_place_or_transcript_do_not_open() {
    let (seed, bytes) = (seed(), bytes(3000));
    let request = CommittedDirection::new(&seed, Direction::Request, &bytes).unwrap();
    let response = CommittedDirection::new(&seed, Direction::Response, &bytes).unwrap();
    let other_seed = Seed::from_bytes([10; 32]);
    let other = CommittedDirection::new(&other_seed, Direction::Request, &bytes).unwrap();
    let good = open_range(&request, 0..300);
    let signed = request.commitment();
    assert!(good.check(Direction::Request, &signed).is_ok());
    // The same bytes in the other direction, and in another session.
    for opening in [open_range(&response, 0..300), open_range(&other, 0..300)] {
        assert!(opening.check(Direction::Request, &signed).is_err());
    }
    assert!(good.check(Direction::Response, &signed).is_err());
    assert!(good.check(Direction::Response, &response.commitment()).is_err());
    let changes: [fn(&mut TranscriptOpening); 9] = [
        |o| o.leaves[0].index = 5,
        |o| o.leaves.swap(0, 1),
        |o| o.leaves[1].salt[0] ^= 1,
        |o| o.leaves[1].chunk[63] ^= 1,
        |o| o.leaves[1].chunk.truncate(63),
        |o| o.leaves[1].chunk.push(0),
        |o| drop(o.leaves.pop()),
        |o| o.siblings.swap(0, 1),
        |o| o.leaves.clear(),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        let mut changed = good.clone();
        change(&mut changed);
        assert!(changed.check(Direction::Request, &signed).is_err(), "change {place}");
    }
}

#[test]
fn lengths_and_depths_cannot_be_played_with() {
    let (seed, long) = (seed(), bytes(1024));
    let whole = CommittedDirection::new(&seed, Direction::Request, &long).unwrap();
    let signed = whole.commitment();
    // Shorter by zeros at the end or by a byte: another root and length, but the same bucket.
    let mut zeros = long.clone();
    zeros.extend([0; 64]);
    for other in [&long[..1023], &long[..960], &zeros[..]] {
        let other = CommittedDirection::new(&seed, Direction::Request, other).unwrap();
        assert_ne!(other.commitment().root, signed.root);
        assert_ne!(other.commitment().length, signed.length);
        let opened = other.open_length().check(Direction::Request, &signed);
        assert_eq!(opened, Err(OpeningError::Length { what: "request" }));
    }
    let opening = open_range(&whole, 0..64);
    for depth in [3, 5, 18] {
        let signed = DirectionCommitment { depth, ..signed };
        assert!(opening.check(Direction::Request, &signed).is_err());
        assert!(whole.open_length().check(Direction::Request, &signed).is_err());
    }
    assert!(whole.open_length().check(Direction::Response, &signed).is_err());
}

#[test]
fn an_inner_node_is_not_taken_for_a_chunk() {
    let (seed, bytes) = (seed(), bytes(2048));
    let committed = CommittedDirection::new(&seed, Direction::Request, &bytes).unwrap();
    let signed = committed.commitment();
    // 65 bytes of a node's input as a leaf of a tree that is one level lower.
    let (left, right) = (committed.open_leaf(0), committed.open_leaf(1));
    let hash = |leaf: &OpenedLeaf| {
        transcript_leaf(Direction::Request, leaf.index, &leaf.salt, &leaf.chunk)
    };
    let input = [&[1][..], &hash(&left), &hash(&right)].concat();
    let mut salt = [0; 16];
    salt.copy_from_slice(&input[6..22]);
    let forged = OpenedLeaf { index: 0, salt, chunk: input[22..].to_vec() };
    let mut siblings = open_range(&committed, 0..128).siblings;
    for keep in [siblings.len(), siblings.len() - 1] {
        siblings.truncate(keep);
        let opening =
            TranscriptOpening { leaves: vec![forged.clone()], siblings: siblings.clone() };
        assert!(opening.check(Direction::Request, &signed).is_err());
        let lower = DirectionCommitment { depth: signed.depth - 1, ..signed };
        assert!(opening.check(Direction::Request, &lower).is_err());
    }
}

#[test]
fn a_witness_is_one_leaf_and_its_whole_path() {
    let (seed, bytes) = (seed(), bytes(64 << 10));
    let committed = CommittedDirection::new(&seed, Direction::Response, &bytes).unwrap();
    let (leaf, siblings) = committed.witness(77).unwrap();
    assert_eq!(siblings.len(), 10);
    let opening = TranscriptOpening { leaves: vec![leaf], siblings };
    assert!(opening.check(Direction::Response, &committed.commitment()).is_ok());
    assert!(committed.witness(1024).is_none());
}
