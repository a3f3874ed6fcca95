//! The version that the arms report.

pub(crate) const VERSION: &str = concat!("confide ", env!("CARGO_PKG_VERSION"));
pub(crate) const VERSION_WITH_TLS: &str =
    concat!("confide ", env!("CARGO_PKG_VERSION"), ", rustls, aws-lc-rs");
