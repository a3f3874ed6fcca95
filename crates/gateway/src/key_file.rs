//! The file of API keys: their digests, what each may use, and its limits.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use http::Method;
use serde::Deserialize;

use crate::{
    api_key::ApiKeyDigest,
    model_field::is_model_name,
    rate_limit::KeyLimits,
    route::RoutePattern,
    trusted_file::{TrustedFileError, read_trusted_file},
};

/// The largest number of bytes of the file: its largest number of keys, with some 250 bytes each.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The largest number of keys. Far more keys are a matter for an authorization hook.
const KEYS_MAX: usize = 4096;
/// The largest number of routes, or of models, of one key.
const LIST_MAX: usize = 256;
/// The largest number of bytes of a key's name, which stands in each line of the usage file.
const NAME_BYTES_MAX: usize = 64;

/// A set of API keys.
#[derive(Debug, Default)]
pub struct KeySet(HashMap<ApiKeyDigest, Arc<KeyEntry>>);

/// The name, limits and restrictions of one key.
#[derive(Debug)]
pub(crate) struct KeyEntry {
    pub(crate) name: Arc<str>,
    pub(crate) limits: KeyLimits,
    /// The routes that the key may use; `None` for all of the listener.
    routes: Option<Vec<RoutePattern>>,
    /// The models that the key may use; `None` for all.
    models: Option<Vec<String>>,
    /// The last second in which the key is valid.
    not_after: Option<u64>,
}

impl KeyEntry {
    /// A key without restrictions other than limits and models.
    pub(crate) fn with_limits(name: &str, limits: KeyLimits, models: Option<Vec<String>>) -> Self {
        Self { name: name.into(), limits, routes: None, models, not_after: None }
    }

    /// Whether the key may use some models only.
    pub(crate) fn limits_models(&self) -> bool {
        self.models.is_some()
    }

    pub(crate) fn is_valid_at(&self, unix_s: u64) -> bool {
        self.not_after.is_none_or(|last| unix_s <= last)
    }

    pub(crate) fn allows_route(&self, method: &Method, path: &str) -> bool {
        let matches = |routes: &Vec<RoutePattern>| routes.iter().any(|r| r.matches(method, path));
        self.routes.as_ref().is_none_or(matches)
    }

    /// Whether the key may use a model. A request without content, such as the one for the list of
    /// models, uses none; other requests have to name one.
    pub(crate) fn allows_model(&self, method: &Method, model: Option<&str>) -> bool {
        let Some(models) = &self.models else { return true };
        match model {
            Some(model) => models.iter().any(|allowed| allowed == model),
            None => [Method::GET, Method::HEAD, Method::DELETE].contains(method),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    #[serde(default)]
    key: Vec<KeyTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    name: String,
    sha256: String,
    routes: Option<Vec<String>>,
    models: Option<Vec<String>>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    tokens_per_day: Option<u64>,
    concurrent: Option<u64>,
    not_after: Option<ExpiryTime>,
}

/// Unix seconds, or a date-time of TOML with an offset.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExpiryTime {
    UnixSeconds(u64),
    DateTime(toml::value::Datetime),
}

impl KeySet {
    /// Reads a file that only its owner may write.
    ///
    /// # Errors
    /// [`TrustedFileError`] if the file cannot be read, others may write to it, or its text is not
    /// valid; see [`KeySet::parse`].
    pub fn read(path: &Path) -> Result<Self, TrustedFileError> {
        let contents = read_trusted_file(path, FILE_BYTES_MAX)?;
        let text = std::str::from_utf8(&contents)
            .map_err(|_| TrustedFileError::content(path, "wanted TOML in UTF-8"))?;
        Self::parse(text).map_err(|reason| TrustedFileError::content(path, reason))
    }

    /// Parses the text of a key file. A text without any key is valid: it locks everyone out.
    ///
    /// # Errors
    /// A text with the number of the key, the wanted and the received value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: KeyFile = toml::from_str(text).map_err(|error| {
            // The error itself would quote the line.
            let start = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            format!("line {line}: {}", remove_quoted(error.message()))
        })?;
        if file.key.len() > KEYS_MAX {
            let got = file.key.len();
            return Err(format!("wanted at most {KEYS_MAX} tables [[key]], got {got}"));
        }
        let (mut keys, mut names) = (HashMap::new(), HashSet::new());
        for (index, table) in file.key.into_iter().enumerate() {
            let at_key = |reason: String| format!("key {}: {reason}", index + 1);
            let (digest, entry) = table.check().map_err(at_key)?;
            if !names.insert(entry.name.clone()) {
                return Err(at_key(format!("the name {} is taken by an earlier key", entry.name)));
            }
            if keys.insert(digest, Arc::new(entry)).is_some() {
                return Err(at_key("sha256: an earlier key has the same digest".into()));
            }
        }
        Ok(Self(keys))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key, so that nobody is served.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn find(&self, digest: &ApiKeyDigest) -> Option<&Arc<KeyEntry>> {
        self.0.get(digest)
    }
}

impl KeyTable {
    fn check(self) -> Result<(ApiKeyDigest, KeyEntry), String> {
        if !is_key_name(&self.name) {
            return Err(format!("name: wanted {KEY_NAME_WANTED}"));
        }
        // The value is not repeated, because it may be a key in place of its digest.
        let digest = <[u8; 32]>::try_from(hex::decode(&self.sha256).unwrap_or_default().as_slice())
            .map_err(
                |_| "sha256: wanted 64 hexadecimal digits; `confide gateway key new` prints them",
            )?;
        let limits = KeyLimits {
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            tokens_per_day: self.tokens_per_day,
            concurrent: self.concurrent,
        };
        limits.check()?;
        let routes =
            self.routes.map(|texts| check_list("routes", texts, parse_route)).transpose()?;
        let models = self.models.map(check_models).transpose()?;
        let not_after = self.not_after.as_ref().map(ExpiryTime::to_unix_s).transpose()?;
        let entry = KeyEntry { name: self.name.into(), limits, routes, models, not_after };
        Ok((ApiKeyDigest(digest), entry))
    }
}

/// Removes what a parser's message quotes from the file, where a key may stand by mistake. The words
/// after `expected`, and the names of missing fields, are the program's.
fn remove_quoted(message: &str) -> String {
    let (got, wanted) = message.split_at(message.rfind("expected").unwrap_or(message.len()));
    match got.find(['`', '"']) {
        Some(quote) if !got.starts_with("missing field") => {
            format!("{}, {wanted}", got[..quote].trim_end())
        }
        _ => message.to_owned(),
    }
}

/// Checks a list of models that a key may use.
pub(crate) fn check_models(texts: Vec<String>) -> Result<Vec<String>, String> {
    check_list("models", texts, parse_model)
}

fn check_list<T>(
    name: &str,
    texts: Vec<String>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    if texts.is_empty() || texts.len() > LIST_MAX {
        let got = texts.len();
        return Err(format!("{name}: wanted 1 to {LIST_MAX}, or no such line for all, got {got}"));
    }
    texts.iter().map(|text| parse(text).map_err(|error| format!("{name}: {error}"))).collect()
}

fn parse_route(text: &str) -> Result<RoutePattern, String> {
    RoutePattern::parse(text).map_err(|error| error.to_string())
}

fn parse_model(text: &str) -> Result<String, String> {
    match is_model_name(text) {
        true => Ok(text.to_owned()),
        false => Err("wanted names of 1 to 256 bytes without control characters".into()),
    }
}

/// The form of a key's name, for errors.
pub const KEY_NAME_WANTED: &str = "1 to 64 letters, digits, `-`, `_` or `.`";

/// Whether a text can be the name of a key.
pub fn is_key_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl ExpiryTime {
    fn to_unix_s(&self) -> Result<u64, String> {
        match self {
            Self::UnixSeconds(seconds) => Ok(*seconds),
            Self::DateTime(time) => datetime_to_unix_s(time).ok_or_else(|| {
                "not_after: wanted Unix seconds or a time such as 2027-01-31T12:00:00Z".into()
            }),
        }
    }
}

/// The Unix seconds of a date-time with an offset, of which a fraction of a second is dropped;
/// `None` for other times and before 1970.
fn datetime_to_unix_s(time: &toml::value::Datetime) -> Option<u64> {
    let (date, clock) = (time.date?, time.time?);
    let offset_s = match time.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes) * 60,
    };
    let days = days_since_1970(date.year.into(), date.month.into(), date.day.into());
    let (hour, minute, second) =
        (i64::from(clock.hour), i64::from(clock.minute), i64::from(clock.second.unwrap_or(0)));
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second - offset_s).ok()
}

/// The days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so
/// that a leap day is the last day of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // From March on, five months have 153 days.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn table(more: &str) -> String {
        format!("[[key]]\nname = \"team-a\"\nsha256 = \"{DIGEST}\"\n{more}\n")
    }

    fn only_entry(more: &str) -> Arc<KeyEntry> {
        KeySet::parse(&table(more)).unwrap().find(&ApiKeyDigest::of_key(b"abc")).unwrap().clone()
    }

    #[test]
    fn a_key_without_restrictions_may_use_everything() {
        let entry = only_entry("");
        assert_eq!((&*entry.name, entry.limits), ("team-a", KeyLimits::default()));
        assert!(entry.allows_route(&Method::DELETE, "/v1/x") && entry.is_valid_at(u64::MAX));
        assert!(entry.allows_model(&Method::POST, None));
        assert!(KeySet::parse("").unwrap().is_empty());
    }

    #[test]
    fn routes_and_models_are_what_the_lists_say() {
        let entry = only_entry(
            "routes = [\"POST /v1/chat/completions\", \"/v1/models/**\"]\nmodels = [\"a/b\", \"Größe L\"]\n\
             requests_per_minute = 1\ntokens_per_minute = 2\ntokens_per_day = 3\nconcurrent = 4",
        );
        assert!(entry.allows_route(&Method::POST, "/v1/chat/completions"));
        assert!(!entry.allows_route(&Method::GET, "/v1/chat/completions"));
        assert!(entry.allows_route(&Method::GET, "/v1/models/x"));
        assert!(!entry.allows_route(&Method::POST, "/v1/embeddings"));
        assert!(entry.allows_model(&Method::POST, Some("a/b")));
        assert!(entry.allows_model(&Method::POST, Some("Größe L")));
        assert!(!entry.allows_model(&Method::POST, Some("a")));
        // Fail closed: a model that is not known is not one of the list.
        assert!(!entry.allows_model(&Method::POST, None));
        assert!(entry.allows_model(&Method::GET, None));
        let limits = [
            entry.limits.requests_per_minute,
            entry.limits.tokens_per_minute,
            entry.limits.tokens_per_day,
            entry.limits.concurrent,
        ];
        assert_eq!(limits, [1, 2, 3, 4].map(Some));
    }

    #[test]
    fn an_expiry_is_unix_seconds_or_a_time_with_an_offset() {
        for (text, wanted) in [
            ("1795425376", 1_795_425_376),
            ("2026-11-23T09:16:16Z", 1_795_425_376),
            ("2026-11-23T10:16:16.9+01:00", 1_795_425_376),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("1970-01-01T00:00:00Z", 0),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            let entry = only_entry(&format!("not_after = {text}"));
            assert_eq!(entry.not_after, Some(wanted), "{text}");
            assert!(entry.is_valid_at(wanted) && !entry.is_valid_at(wanted + 1), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_repeating_a_key() {
        for (text, wanted) in [
            (table("").replace("team-a", "team a"), "key 1: name: wanted 1 to 64 letters"),
            (table("").replace(DIGEST, "ck-secret"), "key 1: sha256: wanted 64 hexadecimal digits"),
            (table("").replace(DIGEST, &DIGEST[..62]), "sha256: wanted 64 hexadecimal digits"),
            (table("key = \"ck-secret\""), "line 4: unknown field, expected one of `name`, "),
            (table("ck-secret = 1"), "line 4: unknown field, expected one of `name`, "),
            (table("concurrent = \"ck-secret\""), "line 4: invalid type: string, expected u64"),
            (table("routes = \"ck-secret\""), "line 4: invalid type: string, expected a sequence"),
            (table("models = [[\"ck-secret\"]]"), "line 4: invalid type: sequence, expected a "),
            (table("ck-secret"), "line 4: "),
            (table("sha256 = ck-secret"), "line 4: "),
            (format!("ck-secret\n\n{}", table("")), "line 1: "),
            (table("").replace("name = \"team-a\"", ""), "line 1: missing field `name`"),
            (table("") + &table(""), "key 2: the name team-a is taken by an earlier key"),
            (
                table("") + &table("").replace("team-a", "b"),
                "key 2: sha256: an earlier key has the same digest",
            ),
            (table("routes = []"), "key 1: routes: wanted 1 to 256"),
            (table("routes = [\"v1\"]"), "key 1: routes: route `v1` is not usable"),
            (table("models = [\"\"]"), "key 1: models: wanted names of 1 to 256 bytes"),
            (table("models = [\"secret\\n\"]"), "key 1: models: wanted names of 1 to 256 bytes"),
            (table("concurrent = 0"), "key 1: concurrent: wanted 1 to 1000000000000, got 0"),
            (table("tokens_per_day = -1"), "line 4: "),
            (table("not_after = 2026-11-23"), "key 1: not_after: wanted Unix seconds or a time"),
            (table("not_after = 1969-12-31T23:59:59Z"), "key 1: not_after: wanted"),
            (table("not_after = 2026-02-30T00:00:00Z"), "line 4: "),
            (table("not_after = \"soon\""), "line 4: "),
            (table("token_per_day = 5"), "line 4: unknown field, expected one of `name`, "),
        ] {
            let error = KeySet::parse(&text).unwrap_err();
            assert!(error.contains(wanted) && !error.contains("secret"), "{text}\n{error}");
        }
        let many: String =
            (0..=KEYS_MAX).map(|n| table("").replace("team-a", &n.to_string())).collect();
        assert!(KeySet::parse(&many).unwrap_err().starts_with("wanted at most 4096 tables"));
    }
}
