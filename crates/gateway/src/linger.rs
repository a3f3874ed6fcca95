//! A request body that is read to its end after nobody wants it any more, as hyper gives it.

use hyper::body::Incoming;

pub(crate) type Lingering = confide_http::Lingering<Incoming>;
