//! The keys of a listener of the kind `terminate` that are flags of `confide gateway` too.
//!
//! They are read as flags, so that a key and its flag have the same range, default and conflicts.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use toml::{Table, Value};

use crate::gateway::terminate::TerminateArgs;

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct TerminateKeys {
    #[command(flatten)]
    args: TerminateArgs,
}

/// Reads the keys, each the name of a flag with `_` for `-`. A list gives a flag several times.
pub(super) fn parse_terminate_keys(table: Table) -> Result<TerminateArgs, String> {
    let known = known_flags();
    let mut line = Vec::new();
    for (key, value) in table {
        let flag = key.replace('_', "-");
        if key.contains('-') || !known.contains(&flag) {
            let keys: Vec<_> = known.iter().map(|flag| flag.replace('-', "_")).collect();
            return Err(format!("unknown key `{key}`, expected one of {}", keys.join(", ")));
        }
        append_flag(&mut line, &flag, value).map_err(|wanted| format!("{key}: {wanted}"))?;
    }
    let keys = TerminateKeys::try_parse_from(line).map_err(|error| describe(&error, &known))?;
    Ok(keys.args)
}

fn known_flags() -> Vec<String> {
    let command = TerminateKeys::command();
    command.get_arguments().filter_map(|flag| flag.get_long()).map(str::to_owned).collect()
}

fn append_flag(line: &mut Vec<OsString>, flag: &str, value: Value) -> Result<(), &'static str> {
    match value {
        Value::Boolean(false) => {}
        Value::Boolean(true) => line.push(format!("--{flag}").into()),
        Value::Integer(number) => line.push(format!("--{flag}={number}").into()),
        Value::String(text) => line.push(format!("--{flag}={text}").into()),
        Value::Array(values) if values.iter().all(Value::is_str) => {
            values.into_iter().try_for_each(|value| append_flag(line, flag, value))?;
        }
        _ => return Err("wanted a string, a whole number, true, false or a list of strings"),
    }
    Ok(())
}

/// The first paragraph of clap's message, with keys in place of flags.
fn describe(error: &clap::Error, known: &[String]) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let mut text = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut flags: Vec<&String> = known.iter().collect();
    // A flag may be the beginning of another.
    flags.sort_by_key(|flag| std::cmp::Reverse(flag.len()));
    for flag in flags {
        text = text.replace(&format!("--{flag}"), &flag.replace('-', "_"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TerminateArgs, String> {
        parse_terminate_keys(text.parse().unwrap())
    }

    #[test]
    fn a_key_is_the_flag_of_its_name() {
        let all = "binding = 'none'\ndangerous_all_routes = true\nupstream_wait_s = 0\n\
                   access_log = '-'\nname = ['a.example', 'b.example']";
        assert!(parse(all).is_ok());
        assert!(parse("").is_ok());
        assert!(parse("dangerous_all_routes = false\nroute = ['/x', 'DELETE /y']").is_ok());
    }

    #[test]
    fn a_wrong_key_or_value_is_refused_in_the_words_of_the_file() {
        for (text, wanted) in [
            ("bindings = 'key'", "unknown key `bindings`, expected one of route, "),
            ("upstream-wait-s = 1", "unknown key `upstream-wait-s`"),
            ("help = true", "unknown key `help`"),
            ("listen = ':1'", "unknown key `listen`"),
            ("binding = 'keys'", "invalid value 'keys' for 'binding <BINDING>'"),
            ("upstream_check_s = 0", "invalid value '0' for 'upstream_check_s <N>'"),
            ("dangerous_all_routes = 'yes'", "unexpected value 'yes' for 'dangerous_all_routes'"),
            ("dangerous_all_routes = true\nroute = ['/x']", "cannot be used with"),
            ("certificate = 'a'", "required arguments were not provided: certificate_key <FILE>"),
            ("route = [1]", "route: wanted a string"),
            ("route = '--binding=none'\nname = 1.5", "name: wanted a string"),
        ] {
            let Err(error) = parse(text) else { panic!("{text} is accepted") };
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
