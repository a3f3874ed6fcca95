//! Chat templates in the dialect of Hugging Face's models.

use crate::{error::EngineError, request::Message};
use minijinja::{Environment, Error, ErrorKind, State, Value, context};

/// Renders a conversation into the text that a model was trained on.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// The ChatML template, for models without a template.
pub const CHATML: &str = "{% for message in messages %}\
    {{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// The largest number of steps of a template. A template that exceeds it does not terminate in
/// practice.
const FUEL: u64 = 10_000_000;
const NAME: &str = "chat";

impl ChatTemplate {
    /// Compiles a template in the dialect that Hugging Face's models use.
    ///
    /// # Errors
    /// The error of the template engine, as text.
    pub fn new(source: &str, bos: String, eos: String) -> Result<Self, String> {
        Self::compile(source, bos, eos).map_err(|error| error.to_string())
    }

    fn compile(source: &str, bos: String, eos: String) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(call_python_method);
        environment.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        environment.add_template_owned(NAME, source.to_owned())?;
        Ok(Self { environment, bos, eos })
    }

    /// Renders a conversation as text that ends where the assistant's answer begins.
    ///
    /// # Errors
    /// [`EngineError::Prompt`] if the template refuses the conversation or exceeds its steps.
    pub fn render(&self, messages: &[Message]) -> Result<String, EngineError> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| {
                context! { role => message.role.as_str(), content => message.content.as_str() }
            })
            .collect();
        let values = context! {
            messages,
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let rendered = self.environment.get_template(NAME).and_then(|it| it.render(values));
        rendered.map_err(|error| EngineError::Prompt { reason: format!("{error:#}") })
    }
}

/// Emulates the methods of Python's strings and dictionaries that templates call.
fn call_python_method(
    _state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let unknown =
        || Error::new(ErrorKind::UnknownMethod, format!("{} has no method {method}", value.kind()));
    let Some(text) = value.as_str() else {
        return call_map_method(value, method, args).ok_or_else(unknown);
    };
    let argument = args.first().and_then(Value::as_str);
    let set: Option<Vec<char>> = argument.map(|set| set.chars().collect());
    let stripped = |character: char| match &set {
        None => character.is_whitespace(),
        Some(set) => set.contains(&character),
    };
    Ok(match (method, argument) {
        ("strip", _) => text.trim_matches(stripped).into(),
        ("lstrip", _) => text.trim_start_matches(stripped).into(),
        ("rstrip", _) => text.trim_end_matches(stripped).into(),
        ("upper", None) => text.to_uppercase().into(),
        ("lower", None) => text.to_lowercase().into(),
        ("startswith", Some(prefix)) => text.starts_with(prefix).into(),
        ("endswith", Some(suffix)) => text.ends_with(suffix).into(),
        ("split", None) => text.split_whitespace().map(Value::from).collect(),
        ("split", Some(border)) if !border.is_empty() => {
            text.split(border).map(Value::from).collect()
        }
        _ => return Err(unknown()),
    })
}

fn call_map_method(value: &Value, method: &str, args: &[Value]) -> Option<Value> {
    let object = value.as_object()?;
    match method {
        "get" => {
            let found = object.get_value(args.first()?);
            Some(found.or_else(|| args.get(1).cloned()).unwrap_or(Value::from(())))
        }
        "items" => {
            let pairs = object.try_iter_pairs()?;
            Some(pairs.map(|(key, item)| Value::from(vec![key, item])).collect())
        }
        "keys" => Some(object.try_iter_pairs()?.map(|(key, _)| key).collect()),
        "values" => Some(object.try_iter_pairs()?.map(|(_, item)| item).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::Role;

    use super::*;

    fn messages() -> Vec<Message> {
        let said = |role, content: &str| Message { role, content: content.into() };
        vec![said(Role::System, "Be brief."), said(Role::User, " Hi {{ there }} ")]
    }

    fn render(source: &str) -> Result<String, EngineError> {
        let template = ChatTemplate::new(source, "<s>".into(), "</s>".into());
        template.expect("it compiles").render(&messages())
    }

    #[test]
    fn the_default_is_chatml_and_messages_are_not_templates() {
        assert_eq!(
            render(CHATML).expect("text"),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi {{ there }} <|im_end|>\n\
             <|im_start|>assistant\n"
        );
    }

    #[test]
    fn the_python_of_usual_templates_works() {
        let source = "{{ bos_token }}{%- for m in messages -%}\
            {%- if m['role'].startswith('sys') -%}[{{ m['content'].strip() }}]\
            {%- elif m.get('tool') is none -%}{{ m.content.split()[0] | upper }}{%- endif -%}\
            {%- endfor -%}{%- for key, item in messages[0].items() -%}{{ key }},{%- endfor -%}";
        assert_eq!(render(source).expect("text"), "<s>[Be brief.]HIrole,content,");
    }

    #[test]
    fn a_template_that_refuses_or_never_ends_is_an_error() {
        let endless =
            "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
        for source in ["{{ raise_exception('roles must alternate') }}", "{{ 1.nope() }}", endless] {
            assert!(matches!(render(source), Err(EngineError::Prompt { .. })));
        }
        assert!(ChatTemplate::new("{% if %}", String::new(), String::new()).is_err());
    }
}
