//! `confide connect --for AGENT`: the configuration with which a coding agent uses the loopback address.
//!
//! The forms were tried with the agents themselves (`make agents`). No API key is written into them:
//! they name the variable that holds it.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use confide_client::ReplicaSet;
use http::{HeaderValue, Request, StatusCode, header};
use serde_json::{Value, json};

use super::command::{API_KEY, NO_API_KEY};

/// The longest wait for the list of models.
const MODELS_DEADLINE: Duration = Duration::from_secs(10);
/// The path of that list.
const MODELS_PATH: &str = "/v1/models";
/// The longest list that is read, in bytes.
const MODELS_BYTES_MAX: usize = 1024 * 1024;
/// The largest number of models that a configuration names, and the longest name.
const MODELS_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 256;
/// What stands for a model that the server does not tell.
const UNKNOWN_MODEL: &str = "MODEL";

/// A coding agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Agent {
    Codex,
    ClaudeCode,
    #[value(name = "opencode")]
    OpenCode,
    Continue,
}

impl Agent {
    /// The agent's name, and where it finds a configuration.
    pub(super) fn describe_place(self) -> &'static str {
        match self {
            Self::Codex => "Codex: add this to ~/.codex/config.toml",
            Self::ClaudeCode => {
                "Claude Code: add this to ~/.claude/settings.json, or save it for `claude --settings FILE`"
            }
            Self::OpenCode => {
                "opencode: add this to opencode.json, or save it for OPENCODE_CONFIG=FILE"
            }
            Self::Continue => {
                "Continue: add this to ~/.continue/config.yaml, or save it for `cn --config FILE`"
            }
        }
    }

    /// Whether the agent reads its configuration from the environment, too.
    pub(super) fn reads_environment(self) -> bool {
        matches!(self, Self::ClaudeCode | Self::OpenCode)
    }

    /// The variables by which a command configures itself as this agent.
    pub(super) fn variables(self, server: &ServerChoice) -> Vec<(&'static str, String)> {
        match self {
            Self::Codex | Self::Continue => Vec::new(),
            Self::ClaudeCode => {
                let token = std::env::var(API_KEY).unwrap_or_else(|_| NO_API_KEY.into());
                let mut variables = claude_variables(server);
                variables.push(("ANTHROPIC_AUTH_TOKEN", token));
                variables
            }
            Self::OpenCode => vec![("OPENCODE_CONFIG_CONTENT", opencode_json(server).to_string())],
        }
    }

    /// The configuration, with a line end.
    pub(super) fn render(self, server: &ServerChoice) -> String {
        match self {
            Self::Codex => codex_toml(server),
            Self::ClaudeCode => format!("{:#}\n", claude_json(server)),
            Self::OpenCode => format!("{:#}\n", opencode_json(server)),
            Self::Continue => continue_yaml(server),
        }
    }
}

/// What a configuration names: the address and the models behind it.
pub(super) struct ServerChoice {
    pub(super) address: SocketAddr,
    /// At least one name, which needs no escapes in JSON, TOML or YAML.
    models: Vec<String>,
    /// Whether the environment has a key, which the agent is told to use.
    has_key: bool,
}

impl ServerChoice {
    /// Asks the verified end for its models.
    pub(super) async fn find(address: SocketAddr, replicas: &ReplicaSet) -> Self {
        let key = std::env::var(API_KEY).ok();
        let listed =
            tokio::time::timeout(MODELS_DEADLINE, list_models(replicas, key.as_deref())).await;
        let listed = listed.unwrap_or_else(|_| Err(format!("no answer in {MODELS_DEADLINE:?}")));
        let mut models = listed.unwrap_or_else(|reason| {
            tracing::warn!("the server's models are not known: {reason}; write one's name in place of {UNKNOWN_MODEL}");
            Vec::new()
        });
        if models.is_empty() {
            models.push(UNKNOWN_MODEL.into());
        }
        Self { address, models, has_key: key.is_some() }
    }

    fn first_model(&self) -> &str {
        self.models.first().map_or(UNKNOWN_MODEL, String::as_str)
    }

    fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// The names of the models that the end lists, without those that a configuration would have to
/// escape: the end may not be trusted with the user's terminal and files.
async fn list_models(replicas: &ReplicaSet, key: Option<&str>) -> Result<Vec<String>, String> {
    let mut request = Request::get(MODELS_PATH);
    if let Some(key) = key {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value.map_err(|_| format!("{API_KEY} is no text for a header field"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    let request = request.body(confide_client::empty_body()).map_err(|error| error.to_string())?;
    let answer = replicas.fetch(request, MODELS_BYTES_MAX).await;
    let answer = answer.map_err(|error| confide_client::error_chain(&error))?;
    if answer.status() != StatusCode::OK {
        return Err(format!("{MODELS_PATH} has status {}", answer.status().as_u16()));
    }
    let list: Value = serde_json::from_slice(answer.body()).map_err(|error| error.to_string())?;
    let models = list["data"].as_array().ok_or("the list has another form")?;
    let names = models.iter().filter_map(|model| model["id"].as_str());
    Ok(names.filter(|name| is_plain_name(name)).take(MODELS_MAX).map(str::to_owned).collect())
}

fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain)
}

fn codex_toml(server: &ServerChoice) -> String {
    let (model, base_url) = (server.first_model(), server.base_url());
    let mut text = format!(
        "model = \"{model}\"\nmodel_provider = \"confide\"\n\n[model_providers.confide]\n\
         name = \"confide\"\nbase_url = \"{base_url}\"\nwire_api = \"responses\"\n"
    );
    if server.has_key {
        let _ = writeln!(text, "env_key = \"{API_KEY}\"");
    }
    text
}

/// The variables of Claude Code. Without the last one it would ask its maker's servers for more than
/// the address gives, such as updates.
fn claude_variables(server: &ServerChoice) -> Vec<(&'static str, String)> {
    let model = server.first_model();
    vec![
        // It adds the path with the version itself.
        ("ANTHROPIC_BASE_URL", format!("http://{}", server.address)),
        ("ANTHROPIC_MODEL", model.into()),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model.into()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
    ]
}

fn claude_json(server: &ServerChoice) -> Value {
    let variables = claude_variables(server).into_iter();
    let variables = variables.map(|(name, value)| (name.to_owned(), Value::from(value)));
    let helper = match server.has_key {
        true => format!("printenv {API_KEY}"),
        false => format!("echo {NO_API_KEY}"),
    };
    json!({ "apiKeyHelper": helper, "env": Value::Object(variables.collect()) })
}

fn opencode_json(server: &ServerChoice) -> Value {
    let model = format!("confide/{}", server.first_model());
    let models = server.models.iter().map(|name| (name.clone(), json!({})));
    let key = match server.has_key {
        true => format!("{{env:{API_KEY}}}"),
        false => NO_API_KEY.into(),
    };
    json!({
        "$schema": "https://opencode.ai/config.json",
        "model": model,
        "small_model": model,
        "provider": { "confide": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "confide",
            "options": { "baseURL": server.base_url(), "apiKey": key },
            "models": Value::Object(models.collect()),
        } },
    })
}

fn continue_yaml(server: &ServerChoice) -> String {
    let key = match server.has_key {
        true => format!("${{{{ secrets.{API_KEY} }}}}"),
        false => NO_API_KEY.into(),
    };
    let mut text = "name: confide\nversion: 1.0.0\nschema: v1\nmodels:\n".to_owned();
    for model in &server.models {
        let _ = write!(
            text,
            "  - name: \"{model}\"\n    provider: openai\n    model: \"{model}\"\n    apiBase: {}\n    apiKey: {key}\n",
            server.base_url()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(has_key: bool) -> ServerChoice {
        let models = vec!["org/model-1".into(), "two".into()];
        ServerChoice { address: "127.0.0.1:8081".parse().unwrap(), models, has_key }
    }

    #[test]
    fn names_that_would_need_escapes_are_left_out() {
        for name in ["org/Model-7B.gguf", "a:latest", "m@1+2_x"] {
            assert!(is_plain_name(name), "{name}");
        }
        for name in ["", "a b", "a\"b", "a\nb", "\u{1b}[31m", "é", &"x".repeat(257)] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }

    #[test]
    fn codex_finds_provider_and_model() {
        let config: toml::Value = toml::from_str(&codex_toml(&server(true))).unwrap();
        assert_eq!(config["model"].as_str(), Some("org/model-1"));
        let provider = &config["model_providers"][config["model_provider"].as_str().unwrap()];
        assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:8081/v1"));
        assert_eq!(provider["env_key"].as_str(), Some("OPENAI_API_KEY"));
        assert!(!codex_toml(&server(false)).contains("env_key"));
    }

    #[test]
    fn claude_code_gets_the_address_without_a_version() {
        let settings = claude_json(&server(true));
        assert_eq!(settings["env"]["ANTHROPIC_BASE_URL"], "http://127.0.0.1:8081");
        assert_eq!(settings["env"]["ANTHROPIC_MODEL"], "org/model-1");
        assert_eq!(settings["apiKeyHelper"], "printenv OPENAI_API_KEY");
    }

    #[test]
    fn opencode_and_continue_get_all_models() {
        let config = opencode_json(&server(true));
        let provider = &config["provider"]["confide"];
        assert_eq!(config["model"], "confide/org/model-1");
        assert!(provider["models"]["two"].is_object(), "{provider}");
        assert_eq!(provider["options"]["apiKey"], "{env:OPENAI_API_KEY}");
        let yaml = continue_yaml(&server(true));
        assert_eq!(yaml.matches("apiBase: http://127.0.0.1:8081/v1\n").count(), 2, "{yaml}");
        assert!(yaml.contains("apiKey: ${{ secrets.OPENAI_API_KEY }}\n"), "{yaml}");
        assert!(continue_yaml(&server(false)).contains("apiKey: none\n"));
    }
}
