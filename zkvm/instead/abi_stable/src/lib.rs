//! The one type of `abi_stable` that OpenVM asks for.

/// Types of the standard library.
pub mod std_types {
    /// A vector, with the layout of the compiler: nothing crosses a library's border here.
    pub use std::vec::Vec as RVec;
}
