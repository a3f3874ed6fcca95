//! Budgets belong to the weights and to an account: another name, copy or process does not renew
//! them.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use confide_lora::{
    AdaptError, Adapter, AnswerAllowance, DeltaProvider, LayerInput, Projection,
    host::{AdapterHost, AuditLog, HostError, HostOptions},
};

use super::test_host::{TestHost, adapter, host_options, vectors};

const WIDTH: usize = 24;

/// A budget file in its own folder, which is deleted on drop.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = format!("confide-lora-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn options(&self) -> HostOptions {
        HostOptions { budget_file: Some(self.0.join("budgets.jsonl")), ..host_options() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn request_answers(
    test_host: &TestHost,
    name: &str,
    count: usize,
) -> Result<Option<u64>, AdaptError> {
    let remote = test_host.remote(name, |_| ());
    let mut output = vec![0f32; count * WIDTH];
    let outputs = &mut [(Projection::Query, &mut output[..])];
    remote.open_session()?.add_deltas(0, LayerInput::Attention, &vectors(count, WIDTH), outputs)?;
    Ok(remote.budget_left())
}

/// Removes the host and waits until its last connection has dropped it, as at the end of a process.
fn end(test_host: &TestHost) {
    let host = Arc::downgrade(&test_host.host());
    test_host.remove_host();
    let until = Instant::now() + Duration::from_secs(60);
    while host.strong_count() > 0 {
        assert!(Instant::now() < until, "the host lives on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_restart_keeps_the_budget() {
    let place = Place::new("restart");
    let adapter = adapter("banking", WIDTH);
    let test_host = TestHost::new(place.options(), &[&adapter]);
    assert_eq!(request_answers(&test_host, "banking", 10), Ok(Some(13)));
    test_host.host().write_final_counts();
    end(&test_host);
    // The host ends as in a crash, without writing the exact counts.
    for left in [3, 1] {
        let (host, count) = (place.options(), if left == 3 { 10 } else { 2 });
        test_host.restart(host, &[&adapter]);
        assert_eq!(request_answers(&test_host, "banking", count), Ok(Some(left)));
        end(&test_host);
    }
    test_host.restart(place.options(), &[&adapter]);
    assert!(matches!(
        request_answers(&test_host, "banking", 2),
        Err(AdaptError::Budget { limit: 23 })
    ));
}

#[test]
fn two_names_of_the_same_weights_share_one_budget() {
    let banking = adapter("banking", WIDTH);
    // A copy of the folder has another name and another B, but answers reveal the same A.
    let mut copy = Adapter { name: "savings".into(), ..banking.clone() };
    copy.modules.values_mut().for_each(|pair| pair.b.values.iter_mut().for_each(|b| *b *= 2.0));
    // Another adapter of the same shape has its own budget.
    let mut other = Adapter { name: "travel".into(), ..banking.clone() };
    other.modules.values_mut().for_each(|pair| pair.a.values[0] += 0.01);
    let test_host = TestHost::new(host_options(), &[&banking, &copy, &other]);
    assert_eq!(request_answers(&test_host, "banking", 10), Ok(Some(13)));
    assert_eq!(request_answers(&test_host, "savings", 10), Ok(Some(3)));
    assert_eq!(request_answers(&test_host, "banking", 3), Ok(Some(0)));
    assert!(matches!(request_answers(&test_host, "savings", 1), Err(AdaptError::Budget { .. })));
    assert_eq!(request_answers(&test_host, "travel", 10), Ok(Some(13)));
}

#[test]
fn a_request_that_does_not_fit_leaves_the_budget_untouched() {
    let test_host = TestHost::new(host_options(), &[&adapter("banking", WIDTH)]);
    let remote = test_host.remote("banking", |_| ());
    let short = remote.reserve_answers(12, Some(13)).expect_err("24 of 23");
    assert_eq!(short, AdaptError::BudgetTooSmall { wanted: 24, left: 23 });
    assert_eq!(remote.budget_left(), Some(23));
    // The host also refuses if a key holder sends the request anyway.
    assert!(matches!(
        request_answers(&test_host, "banking", 24),
        Err(AdaptError::Budget { limit: 23 })
    ));
    assert_eq!(request_answers(&test_host, "banking", 11), Ok(Some(12)));
}

#[test]
fn a_restart_with_a_larger_budget_is_found_out() {
    let adapter = adapter("banking", WIDTH);
    let test_host = TestHost::new(host_options(), &[&adapter]);
    let remote = test_host.remote("banking", |_| ());
    assert!(remote.reserve_answers(30, Some(1)).is_err());
    let allowance = AnswerAllowance::Vectors(100);
    test_host.restart(HostOptions { allowance, ..host_options() }, &[&adapter]);
    assert!(remote.reserve_answers(30, Some(1)).is_ok());
}

#[test]
fn counts_that_cannot_be_kept_or_that_another_host_keeps_are_no_start() {
    let place = Place::new("refused");
    let open = || AdapterHost::new(place.options(), AuditLog::in_memory(|| 0));
    let first = open().unwrap();
    assert!(matches!(open(), Err(HostError::BudgetFile { .. })), "two hosts, one file");
    drop(first);
    drop(open().unwrap());
    let file = place.0.join("not-a-folder");
    std::fs::write(&file, "").unwrap();
    let budget_file = Some(file.join("budgets.jsonl"));
    let options = HostOptions { budget_file, ..host_options() };
    assert!(matches!(
        AdapterHost::new(options, AuditLog::in_memory(|| 0)),
        Err(HostError::BudgetFile { .. })
    ));
}
