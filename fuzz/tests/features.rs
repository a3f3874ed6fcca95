//! Has no test. tests/fuzz.sh builds it next to the targets: cargo then asks the packages of others for the features
//! that the tests ask for, and builds none of them a second time.
