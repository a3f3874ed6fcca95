//! The routes: the methods and paths of the requests that are proxied.

use http::{HeaderName, Method};

use crate::{error::GatewayError, path};

/// The name in a route's list of methods that allows WebSockets. It is not a method on the wire: the
/// handshake is a GET, or a CONNECT in HTTP/2.
pub(crate) const WEBSOCKET: &str = "WEBSOCKET";

/// The methods that `--route PATH` allows without a list of methods.
const METHODS_OF_A_BARE_PATH: [Method; 3] = [Method::GET, Method::HEAD, Method::POST];

/// The routes of OpenAI's and Anthropic's APIs that run a model or store a client's files.
/// Routes that administer the server (adapters, sleep, metrics, tokenisers) are not included.
const INFERENCE_ROUTES: &[&str] = &[
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/responses",
    "GET,HEAD,DELETE /v1/responses/*",
    "POST /v1/responses/*/cancel",
    "GET,HEAD /v1/responses/*/input_items",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1/embeddings",
    "GET,HEAD /v1/models/**",
    "POST /v1/audio/speech",
    "POST /v1/audio/transcriptions",
    "POST /v1/audio/translations",
    "POST /v1/images/generations",
    "POST /v1/images/edits",
    "POST /v1/images/variations",
    "GET,HEAD,POST /v1/files",
    "GET,HEAD,DELETE /v1/files/*",
    "GET,HEAD /v1/files/*/content",
    "POST /v1/rerank",
    "POST /rerank",
];

/// Fields by which some servers replace the method or path of the request line. They would bypass
/// the routes.
pub(crate) static REROUTING: [HeaderName; 5] = [
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-rewrite-url"),
];

/// A route: requests with one of these methods and a path of this form go to a server of `group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The methods that are allowed.
    pub methods: RouteMethods,
    /// A normalised path. A segment `*` matches any one segment; `**` at the end matches any number
    /// of segments, including none.
    pub path: String,
    /// The group of model servers, of which the configuration has to have one.
    pub group: String,
    /// Whether a request goes to the server of the group that has the key which the request names,
    /// and to no other: the servers are gateways for encrypted requests.
    pub by_key_id: bool,
}

/// The methods of a route. CONNECT and TRACE are never proxied, even if every method is allowed.
/// `WEBSOCKET` stands for WebSockets, which have to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteMethods {
    /// Every method, without WebSockets.
    All,
    /// Only the listed methods.
    Only(Vec<Method>),
}

/// The method by which the route of a WebSocket is found.
pub(crate) fn websocket_method() -> Method {
    // A test checks that the name is valid; no route has CONNECT.
    Method::from_bytes(WEBSOCKET.as_bytes()).unwrap_or(Method::CONNECT)
}

impl Route {
    /// Parses `PATH` or `METHOD[,METHOD…] PATH`; a bare path allows GET, HEAD and POST.
    ///
    /// # Errors
    ///
    /// [`GatewayError::Route`] if the methods or the path are malformed.
    pub fn parse(text: &str, group: &str) -> Result<Self, GatewayError> {
        let (methods, path) = RouteMethods::split_from(text)?;
        let (path, group) = (path.to_owned(), group.to_owned());
        let route = Self { methods, path, group, by_key_id: false };
        route.parse_pattern().map(|_| route)
    }

    /// The inference routes, which a gateway proxies by default.
    pub fn inference_routes(group: &str) -> Vec<Self> {
        // A test checks that every entry parses.
        INFERENCE_ROUTES.iter().filter_map(|text| Self::parse(text, group).ok()).collect()
    }

    /// A route for every method and every path, including the upstream's administration.
    pub fn dangerous_everything(group: &str) -> Self {
        let (path, group) = ("/**".into(), group.to_owned());
        Self { methods: RouteMethods::All, path, group, by_key_id: false }
    }

    pub(crate) fn allows_method(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    /// The methods in canonical form: sorted, with `*` for all.
    pub(crate) fn method_names(&self) -> Vec<&str> {
        let mut names = match &self.methods {
            RouteMethods::All => vec!["*"],
            RouteMethods::Only(methods) => methods.iter().map(Method::as_str).collect(),
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn parse_pattern(&self) -> Result<PathPattern, GatewayError> {
        PathPattern::parse(&self.path)
    }
}

impl RouteMethods {
    /// Splits `PATH` or `METHOD[,METHOD…] PATH` into methods and path.
    fn split_from(text: &str) -> Result<(Self, &str), GatewayError> {
        Ok(match text.split_once(' ') {
            None => (Self::Only(METHODS_OF_A_BARE_PATH.to_vec()), text),
            Some((names, path)) => (Self::Only(parse_methods(text, names)?), path),
        })
    }

    fn contains(&self, method: &Method) -> bool {
        match self {
            Self::All => method.as_str() != WEBSOCKET,
            Self::Only(methods) => methods.contains(method),
        }
    }
}

/// The methods and the path of a route, wherever it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutePattern {
    methods: RouteMethods,
    path: PathPattern,
}

impl RoutePattern {
    /// Parses the same text as [`Route::parse`].
    pub(crate) fn parse(text: &str) -> Result<Self, GatewayError> {
        let (methods, path) = RouteMethods::split_from(text)?;
        Ok(Self { methods, path: PathPattern::parse(path)? })
    }

    /// Whether a request with a normalised path matches.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> bool {
        self.methods.contains(method) && self.path.matches(path)
    }
}

fn parse_methods(route: &str, names: &str) -> Result<Vec<Method>, GatewayError> {
    let bad = |got: &str| GatewayError::Route { route: route.into(), got: got.into() };
    names
        .split(',')
        .map(|name| match Method::from_bytes(name.as_bytes()) {
            Ok(Method::CONNECT | Method::TRACE) => Err(bad("a method that is never proxied")),
            Ok(method) if name.bytes().all(|byte| byte.is_ascii_uppercase()) => Ok(method),
            _ => Err(bad("an unknown or lower-case method")),
        })
        .collect()
}

/// The segments of a route's path. Specific patterns sort before general ones, so that the first
/// match is the most specific.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathPattern(Vec<PatternSegment>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PatternSegment {
    Literal(String),
    Any,
    Remainder,
}

impl PathPattern {
    fn parse(path: &str) -> Result<Self, GatewayError> {
        let bad = |got: String| GatewayError::Route { route: path.to_owned(), got };
        match path::normalise(path) {
            Err(fault) => return Err(bad(fault.to_string())),
            Ok(normal) if normal != path => {
                return Err(bad(format!("a path whose normalised form is `{normal}`")));
            }
            Ok(_) => {}
        }
        let mut segments = Vec::new();
        for segment in path.split('/').skip(1) {
            if segments.last() == Some(&PatternSegment::Remainder) {
                return Err(bad("`**` before the end".into()));
            }
            segments.push(match segment {
                "*" => PatternSegment::Any,
                "**" => PatternSegment::Remainder,
                _ if segment.contains('*') => return Err(bad("`*` within a segment".into())),
                _ => PatternSegment::Literal(segment.into()),
            });
        }
        Ok(PathPattern(segments))
    }

    /// Whether a normalised path matches the pattern.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let mut segments = path.split('/').skip(1);
        for wanted in &self.0 {
            let matches = match (wanted, segments.next()) {
                (PatternSegment::Remainder, _) => return true,
                (PatternSegment::Literal(literal), Some(segment)) => literal == segment,
                (PatternSegment::Any, Some(segment)) => !segment.is_empty(),
                (_, None) => false,
            };
            if !matches {
                return false;
            }
        }
        segments.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Route {
        Route::parse(text, "default").unwrap()
    }

    #[test]
    fn a_pattern_covers_whole_segments() {
        for (pattern, path, wanted) in [
            ("/v1/models", "/v1/models", true),
            ("/v1/models", "/v1/models/", false),
            ("/v1/models", "/v1/models/x", false),
            ("/v1/models", "/v1/model", false),
            ("/v1/models", "/", false),
            ("/v1/files/*", "/v1/files/a", true),
            ("/v1/files/*", "/v1/files/", false),
            ("/v1/files/*", "/v1/files", false),
            ("/v1/files/*", "/v1/files/a/content", false),
            ("/v1/files/*/content", "/v1/files/a/content", true),
            ("/v1/models/**", "/v1/models", true),
            ("/v1/models/**", "/v1/models/org/name", true),
            ("/v1/models/**", "/v1/modelsx", false),
            ("/**", "/", true),
            ("/**", "/anything/else", true),
            ("/", "/", true),
            ("/", "/x", false),
        ] {
            let pattern = Route { path: pattern.into(), ..route("/") }.parse_pattern().unwrap();
            assert_eq!(pattern.matches(path), wanted, "{pattern:?} {path}");
        }
    }

    #[test]
    fn every_inference_route_is_readable_and_stands_once() {
        let routes = Route::inference_routes("default");
        assert_eq!(routes.len(), INFERENCE_ROUTES.len());
        for (index, route) in routes.iter().enumerate() {
            assert!(!routes[..index].contains(route), "{route:?}");
        }
    }

    #[test]
    fn a_bare_path_may_be_read_and_posted_to() {
        let bare = route("/tokenize");
        for (method, wanted) in [("GET", true), ("HEAD", true), ("POST", true), ("DELETE", false)] {
            assert_eq!(bare.allows_method(&method.parse().unwrap()), wanted, "{method}");
        }
        assert_eq!(route("DELETE,GET /v1/x").method_names(), ["DELETE", "GET"]);
        assert_eq!(Route::dangerous_everything("default").method_names(), ["*"]);
    }

    #[test]
    fn a_route_that_no_request_could_take_is_refused() {
        for text in [
            "",
            "v1/models",
            "/v1//models",
            "/v1/../metrics",
            "/v1/%6Dodels",
            "/v1/mod*",
            "/**/models",
            "/v1 models",
            "get /v1/models",
            "TRACE /v1/models",
            "GET,CONNECT /v1/models",
            "GET, POST /v1/models",
            " /v1/models",
        ] {
            let refused = Route::parse(text, "default");
            assert!(matches!(refused, Err(GatewayError::Route { .. })), "{text}");
        }
    }

    #[test]
    fn websockets_have_to_be_listed() {
        assert_eq!(websocket_method().as_str(), WEBSOCKET);
        assert!(route("WEBSOCKET /v1/realtime").allows_method(&websocket_method()));
        for other in [route("/v1/realtime"), Route::dangerous_everything("default")] {
            assert!(!other.allows_method(&websocket_method()), "{other:?}");
        }
        for default in Route::inference_routes("default") {
            assert!(!default.allows_method(&websocket_method()), "{default:?}");
        }
    }

    #[test]
    fn a_specific_pattern_sorts_before_a_general_one() {
        let pattern =
            |text: &str| Route { path: text.into(), ..route("/") }.parse_pattern().unwrap();
        let mut patterns = ["/**", "/v1/*", "/v1/**", "/v1/models"].map(pattern);
        patterns.sort();
        assert_eq!(patterns, ["/v1/models", "/v1/*", "/v1/**", "/**"].map(pattern));
    }
}
