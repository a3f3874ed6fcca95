//! `docs/gateway.md` names every flag of the commands that it describes, and no other.

use std::collections::BTreeSet;

use clap::CommandFactory;

const PAGE: &str = include_str!("../../../docs/gateway.md");

#[test]
fn the_page_of_the_gateway_names_all_flags_of_gateway_tunnel_and_connect() {
    let mut program = crate::Arguments::command();
    // Global flags stand at each command only then.
    program.build();
    for name in ["gateway", "tunnel", "connect"] {
        let command = program.find_subcommand(name).expect("a subcommand");
        let real: BTreeSet<String> = command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set())
            .filter_map(|argument| argument.get_long())
            .filter(|long| *long != "help")
            .map(|long| format!("--{long}"))
            .collect();
        let documented = flags_in_table(section(name));
        let missing: Vec<_> = real.difference(&documented).collect();
        let unknown: Vec<_> = documented.difference(&real).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "docs/gateway.md, `confide {name}`: missing {missing:?}, not flags {unknown:?}"
        );
    }
}

fn section(name: &str) -> &'static str {
    let title = format!("## `confide {name}`\n");
    let (_, section) = PAGE.split_once(&title).expect("a section for each command");
    section.split("\n## ").next().unwrap_or_default()
}

/// The flags in the first cells of the section's table: `--flag VALUE` in backticks, one or more.
fn flags_in_table(section: &str) -> BTreeSet<String> {
    let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `--"));
    let cells = first_cells.filter_map(|line| line.split(" | ").next());
    cells
        .flat_map(|cell| cell.split("`, `--"))
        .filter_map(|flag| flag.split([' ', '`']).next())
        .map(|flag| format!("--{flag}"))
        .collect()
}
