//! Bytes across two neighbouring leaves.

use super::*;

/// A claim about two neighbours of a tree of 2^depth leaves, whose others are empty, searched at
/// `at`.
fn across(
    depth: u8,
    first: u32,
    chunks: [&[u8]; 2],
    at: u32,
    needle: &[u8],
) -> ContextCircuit<ContainsClaim> {
    let salt = [0x5a; 16];
    let leaf = |index: u32| {
        let chunk = match index.checked_sub(first) {
            Some(place @ (0 | 1)) => chunks[place as usize],
            _ => &[],
        };
        digest_of(&[&[0, 2], &index.to_be_bytes()[..], &salt, chunk].concat())
    };
    let mut levels = vec![(0..1 << depth).map(leaf).collect::<Vec<_>>()];
    for level in 0..usize::from(depth) {
        let above = levels[level].chunks(2).map(|pair| node(&pair[0], &pair[1])).collect();
        levels.push(above);
    }
    let path = |index: u32, chunk: &[u8]| LeafPath {
        index,
        salt,
        chunk: chunk.to_vec(),
        siblings: (0..usize::from(depth))
            .map(|level| levels[level][(index >> level ^ 1) as usize])
            .collect(),
    };
    let leaves = vec![path(first, chunks[0]), path(first + 1, chunks[1])];
    let claim = ContainsClaim {
        depth,
        leaves: SearchedLeaves::Neighbours,
        place: Some(Arc::new(NeedlePosition { leaves, at })),
        direction: 2,
        root: levels[usize::from(depth)][0],
        needle: needle.to_vec(),
    };
    ContextCircuit { claim, context: CONTEXT }
}

/// Bytes across the edge: the last `before` of the first chunk and the first `after` of the second.
fn edge(chunks: [&[u8]; 2], before: usize, after: usize) -> (u32, Vec<u8>) {
    let at = chunks[0].len() - before;
    (at as u32, [&chunks[0][at..], &chunks[1][..after]].concat())
}

#[test]
fn bytes_across_the_edge_of_any_two_neighbours_are_found() {
    let (one, two) = (message(64), message(128)[64..].to_vec());
    let chunks = [&one[..], &two[..]];
    for (depth, first) in [(1, 0), (2, 0), (2, 1), (2, 2), (3, 3), (3, 4)] {
        for (before, after) in [(1, 1), (5, 3), (1, 63), (63, 1), (32, 32)] {
            let (at, needle) = edge(chunks, before, after);
            assert!(holds(&across(depth, first, chunks, at, &needle)), "{first} of 2^{depth}");
        }
    }
    let (at, needle) = edge(chunks, 5, 3);
    assert!(!holds(&across(2, 1, chunks, at + 1, &needle)));
    // Bytes within the first chunk alone are contained too.
    assert!(holds(&across(2, 1, chunks, 7, &one[7..20])));
}

#[test]
fn nothing_is_found_where_the_first_is_not_full_or_the_second_has_ended() {
    let full = message(64);
    let (short, shorter) = (&full[..60], &full[..3]);
    let joined = [&short[58..], &full[..2]].concat();
    assert!(!holds(&across(2, 1, [short, &full], 58, &joined)));
    // Bytes that include the padding between the chunks are not contained.
    let padded = [&short[58..], &[0x80, 0, 0, 0], &full[..2]].concat();
    assert!(!holds(&across(2, 1, [short, &full], 58, &padded)));
    let (at, needle) = edge([&full, shorter], 2, 3);
    assert!(holds(&across(2, 1, [&full, shorter], at, &needle)));
    for beyond in [0x80, 0] {
        let needle = [&needle[..], &[beyond]].concat();
        assert!(!holds(&across(2, 1, [&full, shorter], at, &needle)));
    }
}

#[test]
fn leaves_that_are_no_neighbours_or_of_another_tree_do_not_hold() {
    let (one, two) = (message(64), message(128)[64..].to_vec());
    let chunks = [&one[..], &two[..]];
    let (at, needle) = edge(chunks, 5, 3);
    let circuit = across(3, 3, chunks, at, &needle);
    let change = |change: &dyn Fn(&mut NeedlePosition)| {
        let mut other = circuit.clone();
        let mut found = copy_place(&circuit);
        change(&mut found);
        other.claim.place = Some(Arc::new(found));
        holds(&other)
    };
    assert!(change(&|_| ()));
    // The same bytes in another order, twice the same leaf, another index.
    assert!(!change(&|found| found.leaves.swap(0, 1)));
    assert!(!change(&|found| found.leaves[1].index = 3));
    assert!(!change(&|found| found.leaves[1].index = 5));
    assert!(!change(&|found| found.leaves.iter_mut().for_each(|leaf| leaf.index += 1)));
    assert!(!change(&|found| found.leaves[1].index = 4 + 8));
    for leaf in 0..2 {
        assert!(!change(&|found| found.leaves[leaf].salt[0] ^= 1));
        assert!(!change(&|found| found.leaves[leaf].chunk[63] ^= 1));
        assert!(!change(&|found| found.leaves[leaf].chunk.truncate(63)));
    }
    for level in 0..3 {
        assert!(!change(&|found| found.leaves[0].siblings[level][31] ^= 1), "{level}");
    }
    for level in 0..2 {
        assert!(!change(&|found| found.leaves[1].siblings[level][31] ^= 1), "{level}");
    }
    let mut other = circuit.clone();
    other.claim.direction = 1;
    assert!(!holds(&other));
    other = circuit.clone();
    other.claim.root[31] ^= 1;
    assert!(!holds(&other));
}

#[test]
fn leaves_with_one_between_them_do_not_hold() {
    let (one, two) = (message(64), message(128)[64..].to_vec());
    let (at, needle) = edge([&one, &two], 5, 3);
    // Both are under the root, but another leaf stands between them.
    let mut apart = across(3, 2, [&one, &[]], at, &needle).claim;
    let far = across(3, 4, [&two, &[]], 0, &two[..1]).claim;
    let mut found = copy_place(&ContextCircuit { claim: apart.clone(), context: CONTEXT });
    let other = copy_place(&ContextCircuit { claim: far, context: CONTEXT });
    found.leaves[1] = other.leaves.into_iter().next().expect("two");
    let leaf = |leaf: &LeafPath| {
        digest_of(&[&[0, 2], &leaf.index.to_be_bytes()[..], &leaf.salt, &leaf.chunk].concat())
    };
    // Leaves 2 and 4 of eight: the roots of their subtrees are neighbours.
    let half = |path: &LeafPath| {
        (0..2).fold(leaf(path), |below, level| match path.index >> level & 1 {
            0 => node(&below, &path.siblings[level]),
            _ => node(&path.siblings[level], &below),
        })
    };
    let (left, right) = (half(&found.leaves[0]), half(&found.leaves[1]));
    found.leaves[0].siblings[2] = right;
    found.leaves[1].siblings[2] = left;
    apart.root = node(&left, &right);
    apart.place = Some(Arc::new(found));
    assert!(!holds(&ContextCircuit { claim: apart, context: CONTEXT }));
}

#[test]
fn no_value_of_two_neighbours_can_be_changed() {
    let (one, two) = (message(64), message(128)[64..].to_vec());
    let long = [&one[..], &two[..]];
    let (at, needle) = edge(long, 5, 3);
    nothing_can_be_changed("siblings", &mut rows(&across(1, 0, long, at, &needle)));
    // Leaves whose paths meet only at the root, the second one short.
    let short = [&one[..], &two[..20]];
    let (at, needle) = edge(short, 1, 20);
    nothing_can_be_changed("cousins", &mut rows(&across(2, 1, short, at, &needle)));
}

#[test]
fn samples_of_the_largest_trees_of_neighbours_cannot_be_changed() {
    let (one, two) = (message(64), message(128)[64..].to_vec());
    let chunks = [&one[..], &two[..]];
    let (at, needle) = edge(chunks, 32, 32);
    for (depth, first, bits) in [(7, 63, 19), (10, 511, 20)] {
        let mut rows = rows(&across(depth, first, chunks, at, &needle));
        check_sample(&format!("across, depth {depth}"), &mut rows, bits);
    }
}
