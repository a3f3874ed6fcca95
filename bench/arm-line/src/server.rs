//! The server of an arm that is a load client: its CPU time, and a core for each of the two.

use std::{fs, io};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The processes behind a load client, and the cores that keep both apart.
///
/// On the core that is asked for, a rate is the rate of one core; off it, the client and the
/// server would take turns and the scheduler would be what is measured.
#[derive(Debug)]
pub struct ServerProcesses {
    pids: Vec<u32>,
    cores: Option<Cores>,
}

#[derive(Clone, Copy, Debug)]
struct Cores {
    server: usize,
    client: usize,
}

/// Number of CPUs that are considered; of a bigger machine the first ones are used.
const CPUS_MAX: usize = CpuSet::MAX_CPU;

impl ServerProcesses {
    /// The first CPU that this process may use is the server's, the last the client's; with one
    /// CPU only, nothing is pinned.
    ///
    /// # Errors
    /// When the allowed CPUs cannot be read.
    pub fn new(pids: &[u32]) -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut usable = (0..CPUS_MAX).filter(|cpu| allowed.is_set(*cpu));
        let cores = usable.next().and_then(|server| {
            let client = usable.next_back()?;
            Some(Cores { server, client })
        });
        Ok(Self { pids: pids.to_vec(), cores })
    }

    /// Pins every thread of the server's processes and this thread, which all threads and children
    /// that it makes later inherit.
    ///
    /// # Errors
    /// When a process is gone or not ours.
    pub fn pin_threads(&self) -> io::Result<()> {
        let Some(cores) = self.cores else { return Ok(()) };
        for pid in &self.pids {
            for thread in thread_ids(*pid)? {
                // A thread may end between the listing and the call.
                let _ = sched_setaffinity(Pid::from_raw(thread), &cpu_set(cores.server));
            }
        }
        Ok(sched_setaffinity(None, &cpu_set(cores.client))?)
    }

    /// Runs `work` on the server's core while the server is idle: a floor of the same core.
    pub fn run_on_server_core<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(cores) = self.cores else { return work() };
        let moved = sched_setaffinity(None, &cpu_set(cores.server)).is_ok();
        let outcome = work();
        if moved {
            let _ = sched_setaffinity(None, &cpu_set(cores.client));
        }
        outcome
    }

    /// CPU seconds of the server's processes so far, to the nanosecond; `None` if the kernel does
    /// not report them or there is no such process.
    pub fn cpu_s(&self) -> Option<f64> {
        if self.pids.is_empty() {
            return None;
        }
        let mut total_ns = 0_u64;
        for pid in &self.pids {
            for thread in thread_ids(*pid).ok()? {
                let path = format!("/proc/{pid}/task/{thread}/schedstat");
                // A thread that has just ended takes its nanoseconds along; none does in a run.
                let Ok(text) = fs::read_to_string(path) else { continue };
                total_ns += text.split_whitespace().next()?.parse::<u64>().ok()?;
            }
        }
        Some(total_ns as f64 / 1e9)
    }

    /// How the cores are shared, for an arm's note.
    pub fn describe_pinning(&self) -> String {
        match self.cores {
            Some(Cores { server, client }) => {
                format!("all of the server on CPU {server}, this client on CPU {client}")
            }
            None => "one CPU: server and client share it".into(),
        }
    }
}

fn cpu_set(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn thread_ids(pid: u32) -> io::Result<Vec<i32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_grows_with_its_work() {
        let side = ServerProcesses::new(&[std::process::id()]).expect("this process has CPUs");
        let Some(before) = side.cpu_s() else {
            println!("skipped: no /proc/PID/task/TID/schedstat");
            return;
        };
        let until = Instant::now() + Duration::from_millis(30);
        let mut turns = 0_u64;
        while Instant::now() < until {
            turns += 1;
        }
        let after = side.cpu_s().expect("it told before");
        assert!(after > before, "{turns} turns, {before} s before, {after} s after");
    }

    #[test]
    fn a_process_that_is_not_there_has_no_cpu_time() {
        let side = ServerProcesses::new(&[u32::MAX]).expect("this process has CPUs");
        assert_eq!(side.cpu_s(), None);
        assert_eq!(ServerProcesses::new(&[]).expect("CPUs").cpu_s(), None);
    }
}
