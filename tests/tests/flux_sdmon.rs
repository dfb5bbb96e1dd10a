//! Tasks of perilog under Flux's own monitor of systemd units (module sdmon, `[systemd] enable = true`): Flux keeps a
//! node offline while the unit of an epilog is alive there.

use anyhow::{Result, ensure};
use perilog_tests::flux::{self, Flux};

const BOTH: &[u32] = &[0, 1];
const ONCE: [(&str, &[u32], &[i32]); 2] = [("prolog", BOTH, &[]), ("epilog", BOTH, &[])];

/// flux-core #6616, #7287: a node that is not cleaned up gets no job. The broker of a node dies during an epilog and
/// comes back, while the edge is stopped. Flux keeps the node offline until the epilog has ended there.
#[test]
fn a_node_with_a_live_epilog_stays_offline() -> Result<()> {
    let cluster = flux::edge_cluster(2).boot()?;
    flux::watched_by_sdmon(&cluster)?;
    let flux = Flux::with_edge(&cluster, "[systemd]\nenable = true\n")?;
    let (n0, n1) = (cluster.node(0)?, cluster.node(1)?);
    let marker = |node: &perilog_tests::Node| node.sh("systemctl is-active flux-epilog-perilog.service || true");
    ensure!(marker(n1)?.trim() == "inactive", "it is active on an idle node");
    flux.hold("epilog")?;
    let job = flux.submit(2, &[], &["true"])?;
    flux.wait_begun(&job, "epilog", BOTH)?;
    ensure!(marker(n1)?.trim() == "active" && marker(n0)?.trim() == "active", "it is not active under an epilog");
    flux.stop_edge()?;
    flux.kill_broker(n1)?;
    let output = || n1.sh("journalctl --no-pager -o cat -u flux");
    flux.wait("Flux says why the node is offline", |_| {
        Ok(output()?.contains("flux-epilog-perilog.service needs cleanup - resources are offline"))
    })?;
    ensure!(flux.online()? == "2", "the node with a live epilog is online: {}", output()?);
    flux.release_scripts("epilog")?;
    flux.wait_up()?;
    ensure!(output()?.contains("cleanup complete - resources are online"), "{}", output()?);
    flux.start_edge()?;
    flux.wait_edge()?;
    flux.wait_clean(&job)?;
    flux.assert_once(&job, &ONCE)?;
    flux.assert_idle()
}
