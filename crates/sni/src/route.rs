//! Which names lead to which machines.

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::{
    server_name::{ServerName, ServerNameError},
    target::PassTarget,
};

/// A name, or all names one label below a domain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamePattern {
    /// This name only.
    Exact(ServerName),
    /// Any one label followed by this domain: `*.example.org` fits `a.example.org`, neither `example.org` nor
    /// `b.a.example.org` (RFC 6125 section 6.4.3).
    AnyLabelOf(ServerName),
}

impl NamePattern {
    /// Parses `a.example.org` or `*.example.org`.
    ///
    /// # Errors
    /// A [`ServerNameError`] if the text, without `*.`, is not a DNS name.
    pub fn parse(text: &str) -> Result<Self, ServerNameError> {
        match text.strip_prefix("*.") {
            Some(domain) => ServerName::parse(domain.as_bytes()).map(Self::AnyLabelOf),
            None => ServerName::parse(text.as_bytes()).map(Self::Exact),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::AnyLabelOf(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// Names, and the machines that serve them.
#[derive(Debug)]
pub struct PassRoute {
    /// The names that lead here.
    pub names: Vec<NamePattern>,
    /// The machines, which take connections in turn.
    pub targets: Vec<PassTarget>,
    /// Whether a connection begins with a PROXY protocol header (version 2) that tells the machine the client's
    /// address.
    pub send_proxy_header: bool,
}

/// The reason why routes do not make a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// There is no route, so every connection would be refused.
    #[error("routes: wanted at least one")]
    Empty,
    /// A route has no name.
    #[error("route {index}: wanted at least one name")]
    NoName {
        /// The position of the route, from 1.
        index: usize,
    },
    /// A route has no target.
    #[error("route {index}: wanted at least one target")]
    NoTarget {
        /// The position of the route, from 1.
        index: usize,
    },
    /// Two routes have the same name.
    #[error("route {index}: {name} already leads to another route")]
    Duplicate {
        /// The position of the second route, from 1.
        index: usize,
        /// The name.
        name: NamePattern,
    },
}

/// All routes of a listener.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<RouteState>,
    exact: HashMap<String, usize>,
    domains: HashMap<String, usize>,
}

#[derive(Debug)]
pub(crate) struct RouteState {
    pub(crate) route: PassRoute,
    next: AtomicUsize,
}

impl RouteTable {
    /// Makes a table. No name has two routes, and no route lacks names or targets.
    ///
    /// # Errors
    /// A [`RouteError`] that names the route.
    pub fn new(routes: Vec<PassRoute>) -> Result<Self, RouteError> {
        if routes.is_empty() {
            return Err(RouteError::Empty);
        }
        let (mut exact, mut domains) = (HashMap::new(), HashMap::new());
        for (position, route) in routes.iter().enumerate() {
            let index = position + 1;
            if route.names.is_empty() {
                return Err(RouteError::NoName { index });
            }
            if route.targets.is_empty() {
                return Err(RouteError::NoTarget { index });
            }
            for name in &route.names {
                let earlier = match name {
                    NamePattern::Exact(name) => exact.insert(name.as_str().to_owned(), position),
                    NamePattern::AnyLabelOf(name) => {
                        domains.insert(name.as_str().to_owned(), position)
                    }
                };
                if earlier.is_some() {
                    return Err(RouteError::Duplicate { index, name: name.clone() });
                }
            }
        }
        let new_state = |route| RouteState { route, next: AtomicUsize::new(0) };
        Ok(Self { routes: routes.into_iter().map(new_state).collect(), exact, domains })
    }

    /// Finds the route of a name: an exact one before one with `*`.
    pub(crate) fn find(&self, name: &ServerName) -> Option<&RouteState> {
        let domain = || name.parent().and_then(|parent| self.domains.get(parent));
        let position = self.exact.get(name.as_str()).or_else(domain)?;
        self.routes.get(*position)
    }
}

impl RouteState {
    /// Lists the targets in the order in which to try them: the next in turn of those that work first, those that
    /// failed recently last. `probe` is the time that one connection has to find out whether a failed one works again.
    pub(crate) fn order_targets(&self, probe: Duration) -> Vec<&PassTarget> {
        let targets = self.route.targets.iter();
        let (avoided, mut ordered): (Vec<_>, Vec<_>) =
            targets.partition(|target| target.is_avoided(probe));
        if !ordered.is_empty() {
            let first = self.next.fetch_add(1, Ordering::Relaxed) % ordered.len();
            ordered.rotate_left(first);
        }
        ordered.extend(avoided);
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(names: &[&str], targets: &[&str]) -> PassRoute {
        PassRoute {
            names: names.iter().map(|name| NamePattern::parse(name).unwrap()).collect(),
            targets: targets.iter().map(|target| PassTarget::parse(target).unwrap()).collect(),
            send_proxy_header: false,
        }
    }

    fn find<'a>(table: &'a RouteTable, name: &str) -> Option<&'a str> {
        let found = table.find(&ServerName::parse(name.as_bytes()).unwrap())?;
        found.route.names.first().map(|_| match found.route.targets[0].to_string().as_str() {
            "a:1" => "a",
            "b:1" => "b",
            _ => "?",
        })
    }

    #[test]
    fn an_exact_name_comes_before_a_star_and_a_star_is_one_label() {
        let routes = vec![
            route(&["*.example.org", "example.org"], &["a:1"]),
            route(&["b.example.org"], &["b:1"]),
        ];
        let table = RouteTable::new(routes).unwrap();
        assert_eq!(find(&table, "x.example.org"), Some("a"));
        assert_eq!(find(&table, "B.EXAMPLE.org"), Some("b"));
        assert_eq!(find(&table, "example.org"), Some("a"));
        for name in ["x.b.example.org", "org", "xexample.org", "example.org.evil"] {
            assert_eq!(find(&table, name), None, "{name}");
        }
    }

    #[test]
    fn a_table_without_a_route_a_name_or_a_target_or_with_a_name_twice_is_refused() {
        let make = |routes| RouteTable::new(routes).unwrap_err();
        assert_eq!(make(vec![]), RouteError::Empty);
        assert_eq!(make(vec![route(&[], &["a:1"])]), RouteError::NoName { index: 1 });
        assert_eq!(make(vec![route(&["a.org"], &[])]), RouteError::NoTarget { index: 1 });
        let twice = make(vec![route(&["a.org"], &["a:1"]), route(&["A.org"], &["b:1"])]);
        assert_eq!(twice.to_string(), "route 2: a.org already leads to another route");
    }

    #[test]
    fn targets_take_turns() {
        let table = RouteTable::new(vec![route(&["a.org"], &["a:1", "b:1", "c:1"])]).unwrap();
        let state = &table.routes[0];
        let order = || {
            state.order_targets(Duration::ZERO).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(order(), ["a:1", "b:1", "c:1"]);
        assert_eq!(order(), ["b:1", "c:1", "a:1"]);
        assert_eq!(order(), ["c:1", "a:1", "b:1"]);
    }
}
