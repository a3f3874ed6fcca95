//! What a record says of a machine, and what it must not say.

use super::*;
use crate::host::root::FakeTree;

#[test]
fn only_what_changes_speed_is_kept_of_the_kernel_command_line() {
    let line = "root=/dev/vda swiotlb=force mitigations=auto,nosmt token=secret quiet";
    assert_eq!(select_speed_parameters(line), "swiotlb=force mitigations=auto,nosmt");
}

#[test]
fn this_machine_can_be_read_and_shown() {
    let machine = Machine::read(Path::new("."));
    assert!(machine.cpus_online > 0);
    assert!(!machine.kernel.is_empty());
    let text = machine.text();
    assert!(text.contains("Processor and memory") && text.contains("Signs of"), "{text}");
    let back: Machine = serde_json::from_str(&machine.json().unwrap()).unwrap();
    assert_eq!(back, machine);
}

#[test]
fn nothing_in_it_names_the_machine_or_its_owner() {
    let text = Machine::read(Path::new(".")).json().unwrap();
    let root = FileTree::system();
    let private = [
        "/proc/sys/kernel/hostname",
        "/etc/machine-id",
        "/sys/class/dmi/id/product_serial",
        "/sys/class/dmi/id/product_uuid",
        "/sys/class/dmi/id/board_serial",
        "/proc/sys/kernel/random/boot_id",
    ];
    let values = private.iter().filter_map(|path| root.read_value(path));
    let macs = root.list_names("/sys/class/net").into_iter().filter_map(|name| {
        let address = root.read_value(&format!("/sys/class/net/{name}/address"))?;
        (address != "00:00:00:00:00:00").then_some(address)
    });
    let user = std::env::var("USER").ok().filter(|user| user != "root");
    let words: Vec<&str> = words(&text).collect();
    for value in values.chain(macs).chain(user) {
        assert!(!words.contains(&value.as_str()), "{value} is in the record");
    }
}

/// Words as a host name could be one: `vm` is not in `kvm-clock`, and `a-b` is one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"-_.:".contains(c))
}

#[test]
fn a_machine_of_an_old_record_is_read_and_shown() {
    let text = r#"{"cpu_model":"X","cpus_online":2,"smt_active":"0","memory_bytes":1073741824,
        "kernel":"6.1","kernel_command_line":"","clock_source":"tsc","governor":"unknown",
        "transparent_hugepages":"madvise","cgroup_cpu_max":"unknown","cgroup_memory_max":"unknown",
        "mitigations":{"spectre_v2":"Mitigation: x"},"virtualisation_hints":["cpu flag hypervisor"]}"#;
    let machine: Machine = serde_json::from_str(text).unwrap();
    let titles: Vec<&str> = machine.facts().iter().map(|group| group.title).collect();
    assert!(!titles.contains(&"GPU") && titles.contains(&"Signs of a confidential VM"));
    assert!(machine.is_virtual());
}

#[test]
fn an_empty_tree_is_unknown_everywhere_and_breaks_nothing() {
    let tree = FakeTree::new("machine-empty", &[]);
    let machine = Machine::read_from(&tree.root, None, Path::new("."), &|_, _| None);
    assert_eq!(machine.cpu_model, UNKNOWN);
    assert_eq!(machine.cgroup_cpu_max, UNKNOWN);
    assert!(machine.text().contains(UNKNOWN));
    assert_eq!(machine.swap_bytes, None);
}

#[test]
fn a_processor_is_named_with_family_and_vector_instructions() {
    let mut machine = Machine { cpu_model: "AMD EPYC".into(), ..Machine::default() };
    assert_eq!(machine.describe_processor(), "AMD EPYC, vector instructions not recorded");
    machine.cpu.family_model_stepping = Some("25 1 1".into());
    machine.cpu.instructions = vec!["avx2".into()];
    let text = machine.describe_processor();
    assert_eq!(text, "AMD EPYC (family 25, model 1), AVX2 without AVX-512");
}

#[test]
fn lists_of_cpus_are_counted() {
    assert_eq!(
        (count_listed_cpus("0-3,8"), count_listed_cpus("0"), count_listed_cpus("")),
        (Some(5), Some(1), None)
    );
    assert_eq!(
        (count_listed_cpus("3-1"), count_listed_cpus("0-18446744073709551615")),
        (None, None)
    );
}
