//! How quiet the machine was around one slice.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::root::FileTree;

/// Counters over one slice, and a fixed piece of arithmetic before and after it. What the machine
/// does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema, Serialize)]
#[schemars(rename = "Quiet")]
pub(crate) struct InterferenceReading {
    /// The share of the slice in which some task waited for a CPU (PSI).
    pub(crate) psi_cpu: Option<f64>,
    /// The share of the slice in which some task waited for memory.
    pub(crate) psi_memory: Option<f64>,
    /// The share of all CPU time that the hypervisor gave to others.
    pub(crate) steal: Option<f64>,
    /// The median time of 100,000 dependent steps in a loop just before the slice.
    pub(crate) calibration_us: f64,
    /// The same just after the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration_after_us: Option<f64>,
    /// The share of the loops' time beyond their medians: what was taken from one busy thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration_lost: Option<f64>,
    /// The share of the slice in which some task waited for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) psi_io: Option<f64>,
    /// The share of all CPU time that was used by others than arm, services and harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) others_cpu: Option<f64>,
    /// The clock rates over all CPUs, at both ends of the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frequency_mhz: Option<Frequency>,
    /// The temperature of the hottest sensor at the end of the slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) temperature_c: Option<f64>,
    /// The context switches of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context_switches: Option<u64>,
    /// The major faults of the whole machine: pages read back from a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) major_faults: Option<u64>,
    /// The pages that the whole machine swapped in and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) swapped_pages: Option<u64>,
}

/// The lowest and the mean clock rate, in MHz.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema, Serialize)]
pub(crate) struct Frequency {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) source: FrequencySource,
}

/// The source of the clock rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FrequencySource {
    Cpufreq,
    /// `/proc/cpuinfo`, which in a VM shows a constant more often than not.
    ProcCpuinfo,
}

impl InterferenceReading {
    /// Computes how much longer the loop took after the slice than before it: 0.05 is 5 % longer.
    pub(crate) fn calibration_drift(&self) -> Option<f64> {
        let after = self.calibration_after_us?;
        (self.calibration_us > 0.0).then(|| after / self.calibration_us - 1.0)
    }
}

/// The most time that one loop may take.
pub(crate) const BUDGET_MAX: Duration = Duration::from_millis(50);
/// The least time of a loop, which is enough for a median on a fast machine.
const BUDGET_MIN: Duration = Duration::from_millis(1);
/// The time of a loop before the first slice of an arm, when nobody knows how long it takes.
const BUDGET_FIRST: Duration = Duration::from_millis(5);
/// The share of the slice that each of the two loops takes, so that a run gets at most 4 % longer.
const BUDGET_SHARE: f64 = 0.02;

/// Returns what one loop may take next to slices as long as the last one.
pub(crate) fn calibration_budget(last_slice: Option<Duration>) -> Duration {
    let of = |slice: Duration| slice.mul_f64(BUDGET_SHARE).clamp(BUDGET_MIN, BUDGET_MAX);
    last_slice.map_or(BUDGET_FIRST, of)
}

/// Counters at the start of a slice.
pub(crate) struct SliceWatch {
    root: FileTree,
    budget: Duration,
    before: CalibrationTimes,
    counters: KernelCounters,
    frequencies: (Vec<f64>, FrequencySource),
    started: Instant,
}

impl SliceWatch {
    /// Runs the calibration loop and reads the counters.
    pub(crate) fn start(budget: Duration) -> Self {
        Self::start_in(FileTree::system(), budget)
    }

    fn start_in(root: FileTree, budget: Duration) -> Self {
        let before = run_calibration_loop(budget);
        let frequencies = read_clock_rates(&root);
        let counters = KernelCounters::read(&root);
        Self { budget, before, counters, frequencies, started: Instant::now(), root }
    }

    /// Reads the counters again, then runs the loop again. `own_cpu_s` is what arm, services and
    /// harness used meanwhile.
    pub(crate) fn stop(self, own_cpu_s: Option<f64>) -> InterferenceReading {
        let wall_us = self.started.elapsed().as_secs_f64() * 1e6;
        let now = KernelCounters::read(&self.root);
        let was = &self.counters;
        let share = |from: Option<f64>, to: Option<f64>| {
            (wall_us > 0.0).then(|| Some(((to? - from?) / wall_us).clamp(0.0, 1.0))).flatten()
        };
        let (psi_cpu, psi_io) = (share(was.psi_cpu, now.psi_cpu), share(was.psi_io, now.psi_io));
        let psi_memory = share(was.psi_memory, now.psi_memory);
        let ticks = was.ticks.zip(now.ticks).map(|(was, now)| now.since(was));
        let since = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        let (mut rates, source) = read_clock_rates(&self.root);
        rates.extend(self.frequencies.0);
        let temperature_c = read_temperature_c(&self.root);
        let after = run_calibration_loop(self.budget);
        InterferenceReading {
            psi_cpu,
            psi_memory,
            psi_io,
            steal: ticks.and_then(|ticks| ticks.share_of_total(ticks.stolen)),
            others_cpu: ticks
                .zip(own_cpu_s)
                .and_then(|(ticks, own_s)| ticks.other_processes_share(own_s)),
            calibration_us: self.before.median_us,
            calibration_after_us: Some(after.median_us),
            calibration_lost: Some(self.before.lost_time_share(&after)),
            frequency_mhz: Frequency::from_rates(&rates, source),
            temperature_c,
            context_switches: since(was.switches, now.switches),
            major_faults: since(was.major_faults, now.major_faults),
            swapped_pages: since(was.swapped, now.swapped),
        }
    }
}

/// Counters since boot.
#[derive(Clone, Copy, Debug, Default)]
struct KernelCounters {
    psi_cpu: Option<f64>,
    psi_memory: Option<f64>,
    psi_io: Option<f64>,
    ticks: Option<CpuTicks>,
    switches: Option<u64>,
    major_faults: Option<u64>,
    swapped: Option<u64>,
}

impl KernelCounters {
    fn read(root: &FileTree) -> Self {
        let psi = |name: &str| parse_psi_us(&root.read_text(&format!("/proc/pressure/{name}"))?);
        let stat = root.read_text("/proc/stat").unwrap_or_default();
        let vmstat = root.read_text("/proc/vmstat").unwrap_or_default();
        let swapped = number_after(&vmstat, "pswpin").zip(number_after(&vmstat, "pswpout"));
        Self {
            psi_cpu: psi("cpu"),
            psi_memory: psi("memory"),
            psi_io: psi("io"),
            ticks: CpuTicks::parse(&stat),
            switches: number_after(&stat, "ctxt"),
            major_faults: number_after(&vmstat, "pgmajfault"),
            swapped: swapped.map(|(swapped_in, out)| swapped_in.saturating_add(out)),
        }
    }
}

/// Parses the microseconds of `some avg10=… total=MICROSECONDS`.
fn parse_psi_us(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split("total=").nth(1)?.trim().parse().ok()
}

/// Returns the number behind a name at the start of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// Ticks of all CPUs, of which every Linux port has 100 a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTicks {
    all: f64,
    busy: f64,
    stolen: f64,
}

/// The ticks of a second (USER_HZ).
pub(super) const TICKS_PER_S: f64 = 100.0;

impl CpuTicks {
    /// Parses user, nice, system, idle, iowait, irq, softirq and steal (proc(5), /proc/stat).
    fn parse(stat: &str) -> Option<Self> {
        let first = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> =
            first.split_whitespace().take(8).filter_map(|value| value.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self { all: busy + idle + iowait + stolen, busy, stolen })
    }

    fn since(self, was: Self) -> Self {
        Self {
            all: self.all - was.all,
            busy: self.busy - was.busy,
            stolen: self.stolen - was.stolen,
        }
    }

    fn share_of_total(self, of: f64) -> Option<f64> {
        (self.all > 0.0).then(|| (of / self.all).clamp(0.0, 1.0))
    }

    /// Returns the share of CPU time that is busy beyond `own_s`. A slice of less than ten ticks is
    /// too short to tell.
    fn other_processes_share(self, own_s: f64) -> Option<f64> {
        if self.all < 10.0 {
            return None;
        }
        self.share_of_total(self.busy - own_s * TICKS_PER_S)
    }
}

/// The most CPUs whose rate is read: on a large machine a sample of them tells as much.
const RATES_MAX: usize = 64;

/// Reads the clock rates in MHz from cpufreq, else from /proc/cpuinfo.
fn read_clock_rates(root: &FileTree) -> (Vec<f64>, FrequencySource) {
    let folder = "/sys/devices/system/cpu/cpufreq";
    let khz = |name: &String| root.read_number(&format!("{folder}/{name}/scaling_cur_freq"));
    let policies = root.list_names(folder);
    let by_policy: Vec<f64> =
        policies.iter().take(RATES_MAX).filter_map(khz).map(|khz| khz as f64 / 1e3).collect();
    if !by_policy.is_empty() {
        return (by_policy, FrequencySource::Cpufreq);
    }
    let cpuinfo = root.read_text("/proc/cpuinfo").unwrap_or_default();
    let rates = cpuinfo.lines().filter(|line| line.starts_with("cpu MHz"));
    let rates = rates.filter_map(|line| line.split_once(':')?.1.trim().parse().ok());
    (rates.take(RATES_MAX).collect(), FrequencySource::ProcCpuinfo)
}

impl Frequency {
    fn from_rates(rates: &[f64], source: FrequencySource) -> Option<Self> {
        let rates: Vec<f64> = rates.iter().copied().filter(|rate| *rate > 0.0).collect();
        let min = rates.iter().copied().min_by(f64::total_cmp)?;
        Some(Self { min, mean: rates.iter().sum::<f64>() / rates.len() as f64, source })
    }
}

/// Reads the hottest of the thermal zones and hardware monitors, which count in millidegrees.
fn read_temperature_c(root: &FileTree) -> Option<f64> {
    let zones = root
        .list_names("/sys/class/thermal")
        .into_iter()
        .filter(|name| name.starts_with("thermal_zone"))
        .map(|name| format!("/sys/class/thermal/{name}/temp"));
    let monitors = root.list_names("/sys/class/hwmon").into_iter().flat_map(|name| {
        let folder = format!("/sys/class/hwmon/{name}");
        let inputs = root.list_names(&folder).into_iter();
        let input = |name: &String| name.starts_with("temp") && name.ends_with("_input");
        inputs.filter(input).map(move |input| format!("{folder}/{input}")).collect::<Vec<_>>()
    });
    let celsius = |path: String| Some(root.read_value(&path)?.parse::<f64>().ok()? / 1e3);
    let possible = |celsius: &f64| (-50.0..200.0).contains(celsius);
    zones.chain(monitors).filter_map(celsius).filter(possible).max_by(f64::total_cmp)
}

/// The steps of one turn of the loop: about 0.2 ms optimised.
const CALIBRATION_STEPS: u32 = 100_000;
/// The number of turns below which a median says nothing.
const TURNS_MIN: usize = 3;

/// The times of one calibration loop.
#[derive(Clone, Debug)]
struct CalibrationTimes {
    turns: usize,
    total_us: f64,
    median_us: f64,
}

impl CalibrationTimes {
    /// Computes the share of both loops' time that lies beyond turns of their median length.
    fn lost_time_share(&self, other: &Self) -> f64 {
        let ideal = |one: &Self| one.median_us * one.turns as f64;
        let total = self.total_us + other.total_us;
        (1.0 - (ideal(self) + ideal(other)) / total.max(1e-9)).clamp(0.0, 1.0)
    }
}

fn run_calibration_loop(budget: Duration) -> CalibrationTimes {
    let started = Instant::now();
    let mut turns = Vec::new();
    while turns.len() < TURNS_MIN || started.elapsed() < budget {
        let turn = Instant::now();
        black_box(spin(CALIBRATION_STEPS));
        turns.push(turn.elapsed().as_secs_f64() * 1e6);
    }
    let total_us = turns.iter().sum();
    turns.sort_by(f64::total_cmp);
    CalibrationTimes { turns: turns.len(), total_us, median_us: turns[turns.len() / 2] }
}

/// Does arithmetic that nothing can shorten, since each step needs the last.
pub(crate) fn spin(steps: u32) -> u64 {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

/// Runs the parsers of this file over any text, for the fuzzer.
pub(super) fn fuzz_parsers(text: &str) {
    let _ = (parse_psi_us(text), number_after(text, "ctxt"), CpuTicks::parse(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::FakeTree;

    #[test]
    fn a_watched_slice_has_shares_between_0_and_1() {
        let watch = SliceWatch::start(Duration::from_millis(1));
        black_box(spin(1000));
        let quiet = watch.stop(Some(0.0));
        assert!(quiet.calibration_us > 0.0 && quiet.calibration_after_us.unwrap() > 0.0);
        assert!(quiet.calibration_drift().is_some());
        let lost = quiet.calibration_lost;
        let psi = [quiet.psi_cpu, quiet.psi_memory, quiet.psi_io];
        for share in psi.into_iter().chain([quiet.steal, quiet.others_cpu, lost]).flatten() {
            assert!((0.0..=1.0).contains(&share));
        }
    }

    #[test]
    fn counters_are_read_from_the_files_of_the_kernel() {
        let tree = FakeTree::new(
            "counters",
            &[
                ("/proc/pressure/io", "some avg10=0.00 total=250\nfull avg10=0.00 total=9\n"),
                ("/proc/stat", "cpu  10 0 10 70 5 0 5 100 0 0\ncpu0 1\nctxt 77\n"),
                ("/proc/vmstat", "pgmajfault 3\npswpin 1\npswpout 2\npswpoutx 9\n"),
                ("/sys/class/thermal/thermal_zone0/temp", "45000\n"),
                ("/sys/class/hwmon/hwmon0/temp1_input", "51500\n"),
                ("/sys/class/hwmon/hwmon0/temp1_crit", "90000\n"),
                ("/proc/cpuinfo", "cpu MHz\t: 2500.0\n\ncpu MHz\t: 2100.0\n"),
            ],
        );
        let counters = KernelCounters::read(&tree.root);
        assert_eq!((counters.psi_io, counters.psi_cpu), (Some(250.0), None));
        assert_eq!(counters.ticks, Some(CpuTicks { all: 200.0, busy: 25.0, stolen: 100.0 }));
        assert_eq!((counters.switches, counters.major_faults), (Some(77), Some(3)));
        assert_eq!(counters.swapped, Some(3));
        assert_eq!(read_temperature_c(&tree.root), Some(51.5));
        let (rates, source) = read_clock_rates(&tree.root);
        let frequency = Frequency::from_rates(&rates, source).unwrap();
        assert_eq!((frequency.min, frequency.mean), (2100.0, 2300.0));
        assert_eq!(frequency.source, FrequencySource::ProcCpuinfo);
        tree.write_file("/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", b"3000000\n");
        assert_eq!(read_clock_rates(&tree.root), (vec![3000.0], FrequencySource::Cpufreq));
    }

    #[test]
    fn a_machine_that_tells_nothing_leaves_everything_absent() {
        let tree = FakeTree::new("counters-none", &[]);
        let watch = SliceWatch::start_in(tree.root.clone(), Duration::ZERO);
        let quiet = watch.stop(None);
        let told = InterferenceReading {
            calibration_us: 0.0,
            calibration_after_us: None,
            calibration_lost: None,
            ..quiet
        };
        assert_eq!(told, InterferenceReading::default());
    }

    #[test]
    fn what_others_used_is_what_is_busy_beyond_ones_own() {
        let ticks = CpuTicks { all: 200.0, busy: 100.0, stolen: 20.0 };
        assert_eq!(ticks.other_processes_share(0.5), Some(0.25));
        assert_eq!(ticks.other_processes_share(2.0), Some(0.0));
        assert_eq!(CpuTicks { all: 4.0, busy: 4.0, stolen: 0.0 }.other_processes_share(0.0), None);
    }

    #[test]
    fn the_loops_take_a_small_share_of_what_they_stand_beside() {
        let second = Duration::from_secs(1);
        assert_eq!(calibration_budget(Some(second)), Duration::from_millis(20));
        assert_eq!(calibration_budget(Some(60 * second)), BUDGET_MAX);
        assert_eq!(calibration_budget(Some(Duration::from_millis(1))), BUDGET_MIN);
        assert_eq!(calibration_budget(None), BUDGET_FIRST);
    }

    #[test]
    fn a_slice_of_an_old_record_is_read() {
        let text = r#"{"psi_cpu":0.1,"psi_memory":null,"steal":0.0,"calibration_us":200.5}"#;
        let quiet: InterferenceReading = serde_json::from_str(text).unwrap();
        assert_eq!((quiet.psi_cpu, quiet.calibration_drift()), (Some(0.1), None));
    }
}
