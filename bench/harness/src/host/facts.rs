//! The machine as grouped lines, from which page, Markdown and terminal draw.

use std::fmt::Write;

use super::{
    machine::{Machine, UNKNOWN},
    tee::{signal::SignalMeaning, summary::SignalVerdict},
};

/// One line: a name, its value, and what a reader must know to read it (often nothing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The name of the fact.
    pub name: String,
    /// The value as shown; `unknown` where it could not be read.
    pub value: String,
    /// What a reader must know to read the value; empty if it needs no note.
    pub note: String,
}

/// Facts that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactGroup {
    /// The subject of the group.
    pub title: &'static str,
    /// The facts, in a fixed order.
    pub facts: Vec<Fact>,
}

impl Machine {
    /// Returns everything that the record holds of the machine, as lines in groups. Lines that an
    /// old record lacks are left out.
    pub fn facts(&self) -> Vec<FactGroup> {
        let groups = vec![
            FactGroup { title: "Processor and memory", facts: self.processor_facts() },
            FactGroup { title: "Kernel", facts: self.kernel_facts() },
            FactGroup { title: "Signs of a confidential VM", facts: self.tee_facts() },
            FactGroup { title: "GPU", facts: self.gpu_facts() },
            FactGroup { title: "Disks", facts: self.disk_facts() },
            FactGroup { title: "Limits and clocks", facts: self.limit_facts() },
            FactGroup { title: "Programs", facts: self.program_hash_facts() },
        ];
        groups.into_iter().filter(|group| !group.facts.is_empty()).collect()
    }

    /// Formats the same as text in two columns, ending in a newline.
    pub fn text(&self) -> String {
        let groups = self.facts();
        let names = groups.iter().flat_map(|group| &group.facts).map(|fact| fact.name.len());
        let width = names.max().unwrap_or_default();
        let mut out = String::new();
        for group in groups {
            let _ = writeln!(out, "{}", group.title);
            for fact in group.facts {
                let Fact { name, value, note } = fact;
                let note = if note.is_empty() { note } else { format!("  ({note})") };
                let _ = writeln!(out, "  {name:width$}  {value}{note}");
            }
            out.push('\n');
        }
        out.pop();
        out
    }

    fn processor_facts(&self) -> Vec<Fact> {
        let cpu = &self.cpu;
        let mut lines = FactLines::default();
        lines.add("CPU", &self.cpu_model);
        lines.add("CPUs online", self.cpus_online.to_string());
        lines.add_known("sockets", cpu.sockets);
        lines.add_known("cores", cpu.cores);
        lines.add_with_note(
            "SMT",
            on_off(&self.smt_active),
            "two threads share a core where it is on",
        );
        lines.add_known("NUMA nodes", cpu.numa_nodes);
        lines.add_known("CPUs allowed", cpu.allowed.as_ref());
        lines.add_known("family, model, stepping", cpu.family_model_stepping.as_ref());
        let note = if self.is_virtual() { "as the hypervisor shows it" } else { "" };
        lines.add_known_with_note("microcode", cpu.microcode.as_ref(), note);
        lines.add_known("last level cache", cpu.last_level_cache.as_ref());
        lines.add("instructions", cpu.instructions.join(" "));
        lines.add("governor", &self.governor);
        lines.add_known("frequency driver", cpu.frequency_driver.as_ref());
        let mhz = |khz: Option<u64>| khz.map(|khz| format!("{} MHz", khz / 1000));
        lines.add_known("frequency, least", mhz(cpu.frequency_min_khz));
        lines.add_known("frequency, most", mhz(cpu.frequency_max_khz));
        lines.add("turbo", cpu.turbo.as_deref().unwrap_or(UNKNOWN));
        lines.add_known("idle driver", cpu.idle_driver.as_ref());
        lines.add("memory", gib(self.memory_bytes));
        lines.add_known("swap", self.swap_bytes.map(gib));
        lines.add("huge pages", &self.transparent_hugepages);
        lines.facts
    }

    fn kernel_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        lines.add("kernel", &self.kernel);
        lines.add_with_note(
            "command line",
            &self.kernel_command_line,
            "parameters that change speed",
        );
        let bounce = &self.swiotlb;
        let size = bounce.size_bytes.map(|bytes| {
            let from = bounce.source.as_deref().unwrap_or_default();
            format!("{} MiB by {from}", bytes >> 20)
        });
        let forced = bounce.forced.map(|forced| if forced { "forced" } else { "not forced" });
        let parts = [forced.map(str::to_owned), size];
        let text = join_known(parts);
        lines.add_with_note(
            "bounce buffers (swiotlb)",
            text,
            "if forced, device traffic is copied",
        );
        for (name, text) in &self.mitigations {
            lines.add(&format!("mitigation {name}"), text);
        }
        lines.facts
    }

    fn tee_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        let tee = &self.tee;
        if tee.reading == SignalVerdict::NotRead {
            if !self.virtualisation_hints.is_empty() {
                lines.add_with_note("hints", self.virtualisation_hints.join("; "), HINT);
            }
            return lines.facts;
        }
        lines.add_with_note("summary", tee.text(), HINT);
        for signal in &tee.signals {
            let kinds = signal.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            let note = match signal.says {
                SignalMeaning::Guest => format!("indicates {kinds}"),
                SignalMeaning::Absent => format!("a guest of {kinds} shows it"),
                SignalMeaning::Able if kinds.is_empty() => "able, not necessarily on".into(),
                SignalMeaning::Able => format!("able: {kinds}; not necessarily on"),
                SignalMeaning::Unread => "no information".into(),
                SignalMeaning::Context => String::new(),
            };
            lines.add_with_note(&signal.source, &signal.value, &note);
        }
        lines.facts
    }

    fn gpu_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        let gpus = &self.gpus;
        if gpus.source.is_empty() {
            return Vec::new();
        }
        lines.add("source", &gpus.source);
        lines.add_known("driver", gpus.driver.as_ref());
        lines.add_known("CUDA of the driver", gpus.cuda.as_ref());
        for (index, gpu) in gpus.devices.iter().enumerate() {
            let parts = [
                gpu.name.clone(),
                gpu.memory_total.clone(),
                gpu.memory_protected.as_ref().map(|text| format!("protected {text}")),
                gpu.mig.as_ref().map(|text| format!("MIG {text}")),
                gpu.ecc.as_ref().map(|text| format!("ECC {text}")),
                gpu.power_limit.as_ref().map(|text| format!("at most {text}")),
                gpu.clock_graphics_max.as_ref().map(|text| format!("up to {text}")),
                gpu.virtualisation.clone(),
            ];
            let text = join_known(parts);
            lines.add(&format!("GPU {index}"), text);
        }
        for (name, value) in &gpus.confidential {
            lines.add_with_note(name, value, "as reported by nvidia-smi; a hint");
        }
        lines.facts
    }

    fn disk_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        if let Some(output) = &self.output {
            let disk = output.disk.as_ref().map(|disk| format!(" on {disk}")).unwrap_or_default();
            let text = format!("{}{disk}, {}", output.kind, output.options.join(" "));
            lines.add("output folder", text);
        }
        for disk in &self.disks {
            let parts = [
                disk.model.clone(),
                disk.size_bytes.map(gib),
                disk.write_cache.as_ref().map(|text| format!("cache {text}")),
                disk.cache_type.as_ref().map(|text| format!("device reports {text}")),
                disk.fua.map(|fua| format!("FUA {}", if fua { "yes" } else { "no" })),
                disk.scheduler.as_ref().map(|text| format!("scheduler {text}")),
                disk.queues.map(|queues| format!("{queues} queues")),
                disk.rotational.filter(|turns| *turns).map(|_| "rotational".to_owned()),
            ];
            let text = join_known(parts);
            let host_may_cache = "as the guest sees it: the host may cache more";
            let note = if self.is_virtual() { host_may_cache } else { "" };
            lines.add_with_note(&disk.name, text, note);
        }
        lines.facts
    }

    fn limit_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        let limits = &self.limits;
        match &limits.version {
            Some(version) => {
                let none = || "no limit".to_owned();
                lines.add("cgroup version", version);
                lines.add("CPU", limits.cpus.map_or_else(none, |cpus| format!("{cpus} CPUs")));
                lines.add("memory", limits.memory_bytes.map_or_else(none, gib));
                lines.add_known("cpuset", limits.cpuset.as_ref());
            }
            None => {
                lines.add("cgroup, CPU", &self.cgroup_cpu_max);
                lines.add("cgroup, memory", &self.cgroup_memory_max);
            }
        }
        lines.add("clock source", &self.clock_source);
        lines.add_known("clock sources available", self.clock.available.as_ref());
        if let Some(source) = &self.clock.offset_source {
            let text = self.clock.offset_s.map(|offset| format!("{:.3} ms", offset * 1e3));
            let note = if text.is_some() { format!("by {source}") } else { source.clone() };
            lines.add_with_note("wall clock ahead by", text.as_deref().unwrap_or(UNKNOWN), &note);
        }
        lines.facts
    }

    fn program_hash_facts(&self) -> Vec<Fact> {
        let mut lines = FactLines::default();
        for (name, program) in &self.programs {
            let text = format!("SHA-256 {}", program.sha256);
            lines.add_with_note(name, text, &format!("{} bytes", program.bytes));
        }
        lines.facts
    }
}

/// The note on every summary of signs of protection.
const HINT: &str = "only a hint: an arm counts as protected only if its evidence was verified";

#[derive(Default)]
struct FactLines {
    facts: Vec<Fact>,
}

impl FactLines {
    fn add(&mut self, name: &str, value: impl AsRef<str>) {
        self.add_with_note(name, value, "");
    }

    fn add_with_note(&mut self, name: &str, value: impl AsRef<str>, note: &str) {
        let value = match value.as_ref() {
            "" => UNKNOWN,
            value => value,
        };
        let (name, value, note) = (name.to_owned(), value.to_owned(), note.to_owned());
        self.facts.push(Fact { name, value, note });
    }

    fn add_known(&mut self, name: &str, value: Option<impl ToString>) {
        self.add_known_with_note(name, value, "");
    }

    fn add_known_with_note(&mut self, name: &str, value: Option<impl ToString>, note: &str) {
        if let Some(value) = value {
            self.add_with_note(name, value.to_string(), note);
        }
    }
}

/// Joins the known parts by commas.
fn join_known<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn on_off(text: &str) -> &str {
    match text {
        "1" => "on",
        "0" => "off",
        other => other,
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
