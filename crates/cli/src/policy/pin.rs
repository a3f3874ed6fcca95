//! `confide policy pin`: pins the configuration that clients demand.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use confide_verifier::{Expect, Policy};

use super::file;
use crate::{error::CliError, new_file::NewFile};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The policy, TOML; it is edited in place, and its comments stay.
    file: PathBuf,
    /// The digest of the server's configuration, from its ready line or `--print-config-digest`; if
    /// several are given, any of them is accepted.
    #[arg(long, value_name = "HEX", required = true, value_parser = parse_digest)]
    digest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let path = &args.file;
    let text = file::read_policy_text(path)?;
    let before =
        file::parse_without_disclosure(&text).map_err(|error| file::explain_error(path, &error))?;
    let pinned = pin_digests(&text, &args.digest);
    let wanted = Policy {
        config_digest: Some(expect_digests(&args.digest)),
        dangerous_scope: None,
        ..before
    };
    // Whatever the lines were, the result must differ in these two keys only.
    if file::parse_without_disclosure(&pinned).ok().as_ref() != Some(&wanted) {
        let text = format!("{}: its line config_digest cannot be replaced", path.display());
        return Err(CliError::new(text)
            .with_hint("write config_digest = \"HEX\" before the first [table] by hand"));
    }
    replace_file(path, &pinned)?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the file that `path` leads to by one with this text and the same permissions.
fn replace_file(path: &Path, text: &str) -> Result<(), CliError> {
    let cannot = |error| CliError::new(format!("{} cannot be changed: {error}", path.display()));
    let file = path.canonicalize().map_err(cannot)?;
    let permissions = file.metadata().map_err(cannot)?.permissions();
    NewFile::create_next_to(&file)?.save(text.as_bytes())?;
    std::fs::set_permissions(&file, permissions).map_err(cannot)
}

/// The text with `config_digest` set and `dangerous_scope` removed; every other line is unchanged.
fn pin_digests(text: &str, digests: &[String]) -> String {
    let value = match digests {
        [one] => format!("\"{one}\""),
        several => format!("[\"{}\"]", several.join("\", \"")),
    };
    let line = format!("config_digest = {value}");
    let (mut lines, mut is_set, mut in_table) = (Vec::new(), false, false);
    for each in text.lines() {
        // A key below a table's head is that table's.
        if !in_table && each.trim_start().starts_with('[') {
            in_table = true;
            if !is_set {
                lines.extend([line.as_str(), ""]);
                is_set = true;
            }
        }
        let key = each.split_once('=').map_or("", |(key, _)| key.trim());
        match key {
            "config_digest" if !in_table => {
                lines.push(&line);
                is_set = true;
            }
            "dangerous_scope" if !in_table => {}
            _ => lines.push(each),
        }
    }
    if !is_set {
        lines.push(&line);
    }
    lines.join("\n") + "\n"
}

fn expect_digests(digests: &[String]) -> Expect<[u8; 32]> {
    let mut values: Vec<[u8; 32]> =
        digests.iter().filter_map(|digest| decode_digest(digest)).collect();
    match values.len() {
        1 => Expect::Exactly(values.remove(0)),
        _ => Expect::AnyOf(values),
    }
}

fn decode_digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// Reads a digest, for `clap`.
pub(super) fn parse_digest(text: &str) -> Result<String, String> {
    let wanted = || format!("wanted 64 hexadecimal digits, got {} characters", text.len());
    decode_digest(text).map(hex::encode).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_pinned(text: &str, digests: &[String]) -> Policy {
        file::parse_without_disclosure(&pin_digests(text, digests)).unwrap()
    }

    #[test]
    fn the_file_behind_a_link_is_changed_and_stays_as_private_as_it_was() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = std::env::temp_dir().join(format!("confide-pin-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (real, link) = (folder.join("real.toml"), folder.join("link.toml"));
        std::fs::write(&real, "config_digest = \"dangerous-any\"\n").unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o600)).unwrap();
        symlink(&real, &link).unwrap();
        run(&Args { file: link.clone(), digest: vec!["ab".repeat(32)] }).unwrap();
        assert!(link.is_symlink());
        assert!(std::fs::read_to_string(&real).unwrap().contains(&"ab".repeat(32)));
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_policy_is_pinned_wherever_its_line_stands_and_the_rest_stays() {
        let digests = ["ab".repeat(32)];
        let pinned = Expect::Exactly([0xab; 32]);
        let workload = "[workload.sgx]\nmrenclave = \"dangerous-any\"\nmrsigner = \
                        \"dangerous-any\"\nisv_prod_id = 1\nisv_svn_min = 0\n";
        for text in [
            String::new(),
            "config_digest = \"dangerous-any\"\n".into(),
            format!("# A comment.\nconfig_digest=\"{}\"\n\n{workload}", "00".repeat(32)),
            format!("dangerous_scope = \"platform\"\n{workload}"),
            format!("binding = \"key\"\n{workload}[disclosure]\nhosts = [\"a\"]\n"),
        ] {
            let before = file::parse_without_disclosure(&text).unwrap();
            let wanted =
                Policy { config_digest: Some(pinned.clone()), dangerous_scope: None, ..before };
            assert_eq!(parse_pinned(&text, &digests), wanted, "{text}");
            let kept = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
            assert_eq!(kept(&pin_digests(&text, &digests)), kept(&text));
        }
        let two = ["ab".repeat(32), "cd".repeat(32)];
        let wanted = Some(Expect::AnyOf(vec![[0xab; 32], [0xcd; 32]]));
        assert_eq!(parse_pinned("", &two).config_digest, wanted);
    }

    #[test]
    fn a_line_that_cannot_be_replaced_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("confide-pin-{}", std::process::id()));
        let text = "config_digest = [\n  \"dangerous-any\",\n]\n";
        std::fs::write(&folder, text).unwrap();
        let args = Args { file: folder.clone(), digest: vec!["ab".repeat(32)] };
        assert!(run(&args).is_err());
        assert_eq!(std::fs::read_to_string(&folder).unwrap(), text);
        std::fs::remove_file(folder).unwrap();
    }

    #[test]
    fn a_digest_is_64_hexadecimal_digits() {
        assert_eq!(parse_digest(&"AB".repeat(32)), Ok("ab".repeat(32)));
        for bad in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
            assert!(parse_digest(bad).is_err(), "{bad}");
        }
    }
}
