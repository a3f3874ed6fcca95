//! Asks for the features that tests ask for of the same packages: tests/fuzz.sh builds this next to the targets, and so
//! no package of others is built a second time.

#[test]
fn the_fuzz_targets_share_the_packages_of_the_tests() {}
