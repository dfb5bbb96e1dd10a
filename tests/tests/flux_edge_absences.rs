//! The edge under a real Flux, parts of which are down or come back with an older state. Each script runs once, no
//! epilog runs while the job's processes live, and no job runs beside the epilog of another job.

use anyhow::{Context, Result, ensure};
use perilog_tests::flux::{self, Flux};

const BOTH: &[u32] = &[0, 1];
const ONCE: [(&str, &[u32], &[i32]); 2] = [("prolog", BOTH, &[]), ("epilog", BOTH, &[])];
/// Script of a user's process that ignores SIGTERM. As a sign of life it keeps writing the time, by the ledger's clock,
/// to /tmp/alive.
const STUBBORN: &str = "trap '' TERM\nwhile :; do cut -d' ' -f1 /proc/uptime >>/tmp/alive; sleep 0.05; done";
const UNTIL_ENDED: [&str; 3] = ["sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.05; done"];

/// A user cancels a job whose processes ignore SIGTERM. The job enters its epilog at once, and Flux kills the processes
/// seconds later. perilog's epilog waits for their end.
#[test]
fn an_epilog_waits_for_the_tasks_of_a_cancelled_job() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let job = flux.submit(2, &[], &["sh", "-c", STUBBORN])?;
    flux.wait_alive()?;
    flux.ask(&["cancel", &job])?;
    flux.wait_clean(&job)?;
    flux.assert_epilog_after_tasks(&job)?;
    flux.assert_once(&job, &ONCE)?;
    flux.assert_idle()
}

/// kill -9 of rank 0: the restarted rank 0 posts `release` while the user's processes still live on other nodes. The
/// epilog waits for their end.
#[test]
fn an_epilog_waits_for_the_tasks_that_outlive_rank_0() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let job = flux.submit(2, &[], &["sh", "-c", STUBBORN])?;
    flux.wait_alive()?;
    flux.kill_rank_0_after_sync()?;
    flux.wait_clean(&job)?;
    flux.assert_epilog_after_tasks(&job)?;
    flux.assert_once(&job, &ONCE)?;
    flux.wait_up()?;
    flux.assert_idle()
}

/// The broker of a node is down when the prolog ends: the job begins when the broker is back. If the edge did not wait
/// for the broker, Flux would fail the job.
#[test]
fn a_prolog_is_finished_when_the_brokers_of_its_nodes_are_back() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    flux.hold("prolog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "prolog", BOTH)?;
    flux.stop_broker(cluster.node(1)?)?;
    flux.release_scripts("prolog")?;
    cluster.wait_verdicts(&flux::plain(&job))?;
    cluster.node(1)?.systemctl(&["start", "flux"])?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    flux.assert_once(&job, &ONCE)?;
    flux.assert_idle()
}

/// Flux stops in good order while a job runs: it cancels the job, and the job's epilog runs.
#[test]
fn a_clean_stop_of_flux_leaves_no_epilog_out() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let job = flux.submit(2, &[], &UNTIL_ENDED)?;
    flux.wait_event(&job, "start")?;
    flux.rank_0()?.run_within(LONG, &["systemctl", "restart", "flux"])?.ok()?;
    flux.wait_up()?;
    flux.wait_clean(&job)?;
    flux.assert_once(&job, &ONCE)?;
    flux.assert_idle()
}

/// Time limit for a stop of Flux in good order, which waits for the cleanup of jobs.
const LONG: std::time::Duration = std::time::Duration::from_secs(150);

/// Flux comes back with an older state, without a job that ran: perilog cleans up after the job. A new job on the same
/// nodes begins there after the cleanup.
#[test]
fn a_job_lost_by_flux_is_cleaned_up_before_the_next() -> Result<()> {
    const ROLL_BACK: &str = "[Service]\nExecStartPre=+/bin/sh -c 'test ! -e /root/back || \
        { rm -rf /var/lib/flux /root/back && cp -a /root/flux /var/lib/flux; }'\n";
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let rank_0 = flux.rank_0()?;
    // The nodes have had a job before.
    flux.wait_clean(&flux.submit(2, &[], &["true"])?)?;
    rank_0.write_file("/etc/systemd/system/flux.service.d/roll-back.conf", ROLL_BACK)?;
    rank_0.run_within(LONG, &["systemctl", "stop", "flux"])?.ok()?;
    rank_0.sh("cp -a /var/lib/flux /root/flux && systemctl daemon-reload")?;
    rank_0.systemctl(&["start", "flux"])?;
    flux.wait_up()?;
    let lost = flux.submit(2, &[], &UNTIL_ENDED)?;
    flux.wait_event(&lost, "start")?;
    flux.hold("epilog")?;
    rank_0.sh("touch /root/back")?;
    flux.kill_rank_0()?;
    flux.wait_up()?;
    flux.wait_begun(&lost, "epilog", BOTH)?;
    let next = flux.submit(2, &[], &["true"])?;
    flux.release_scripts("epilog")?;
    flux.wait_clean(&next)?;
    ensure!(flux.events(&lost).is_err() || next == lost, "Flux has it still: {:?}", flux.story(&lost)?);
    if next != lost {
        flux.assert_once(&lost, &ONCE)?;
    }
    flux.assert_once(&next, &ONCE)?;
    let ledger = cluster.ledger()?;
    for node in cluster.nodes() {
        // Flux tells nothing of the lost job, and its epilog has its variables all the same.
        let (id, output) = (flux::plain(&lost), node.read_file("/var/lib/ledger/flux")?);
        let epilogs = output.lines().filter(|line| line.starts_with(&format!("epilog {id} ")));
        let has_all = |line: &str| line.split_whitespace().count() == 5 && line.contains(" 64001 ");
        ensure!(epilogs.clone().count() > 0 && epilogs.clone().all(has_all), "{}: {output}", node.name());
        let at = |job: &str, action: &str| {
            let of_job = ledger.of_job(&flux::plain(job));
            let run = of_job.iter().find(|(key, run)| key.action == action && run.node == node.name());
            run.map(|(_, run)| (*run).clone()).context("a run")
        };
        let (old, new) = (at(&lost, "epilog")?, at(&next, "prolog")?);
        ensure!(old.ended.is_some_and(|(at, _)| at <= new.started), "{old:?} {new:?}");
    }
    flux.wait_undrained()?;
    flux.assert_idle()
}

/// The controller's store is restored from a copy while a job runs; the copy has the job's prolog as begun. The edge
/// reports Flux's jobs, nothing is abandoned without an operator, and the scripts run once.
#[test]
fn a_restored_store_gets_its_jobs_from_the_edge() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    let flux = Flux::with_edge(&cluster, "")?;
    let perilog = |arguments: &[&str]| cluster.perilog(arguments)?.ok();
    flux.hold("prolog")?;
    let job = flux.submit(2, &[], &UNTIL_ENDED)?;
    flux.wait_begun(&job, "prolog", BOTH)?;
    perilog(&["controller", "backup", "/root/copy.db"])?;
    flux.release_scripts("prolog")?;
    flux.wait_event(&job, "start")?;
    perilog(&["controller", "restore", "/root/copy.db"])?;
    flux.wait("nothing is abandoned", |_| {
        let listed = cluster.perilog(&["ps", "--abandoned"])?;
        Ok(listed.stdout.contains("nothing is abandoned"))
    })?;
    cluster.nodes().iter().try_for_each(|node| node.write_file("/tmp/end", ""))?;
    flux.wait_clean(&job)?;
    ensure!(flux.result(&job)? == "COMPLETED", "{:#?}", flux.events(&job)?);
    flux.assert_once(&job, &ONCE)?;
    flux.assert_idle()
}
