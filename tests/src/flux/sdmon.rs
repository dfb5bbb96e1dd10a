//! Preparation of nodes for Flux's module sdmon, which watches systemd units: a systemd instance of the user flux, and
//! perilog's drop-in for the units of tasks.

use anyhow::{Context, Result};
use serde_json::json;

use super::{ADD_USER, Flux, SOON, USER};
use crate::cluster::Cluster;
use crate::node::Node;

const DROP_IN: &str = include_str!("../../../docs/examples/flux/sdmon.conf");

/// Lines of Flux's configuration with which jobs run as units of the systemd of the user flux, as the administrator's
/// guide of Flux shows.
pub const SDEXEC: &str = "[systemd]\nenable = true\n[exec]\nservice = \"sdexec\"\n";

/// Prepares every node for Flux's `[systemd] enable = true`; call this before [`Flux::start`]. Starts the systemd of
/// the user flux, because a node of a bed has no login manager to start it.
pub fn watched_by_sdmon(cluster: &Cluster) -> Result<()> {
    for node in cluster.bed().nodes() {
        node.write_file("/etc/systemd/system/perilog-task-.service.d/flux.conf", DROP_IN)?;
        node.sh(ADD_USER)?;
        node.sh(&format!(
            "run=/run/user/$(id -u {USER}); install -d -o {USER} -g {USER} -m 700 \"$run\"; systemctl daemon-reload
            systemd-run --quiet --unit=user-manager --uid={USER} --property=Delegate=yes \
            --setenv=XDG_RUNTIME_DIR=\"$run\" \
             /lib/systemd/systemd --user"
        ))?;
        let bus = || Ok(node.sh(&format!("test -S /run/user/$(id -u {USER})/bus")).is_ok());
        cluster.bed().wait_until("the user's bus is there", SOON, bus)?;
    }
    Ok(())
}

impl Flux<'_> {
    /// Kills a node's broker with kill -9; returns when systemd has started another broker and all brokers have joined.
    pub fn kill_broker(&self, node: &Node) -> Result<()> {
        let pid = || node.systemctl(&["show", "--property=MainPID", "--value", "flux.service"]);
        let was = pid()?;
        Cluster::kill_unit(node, "flux.service")?;
        self.wait("the broker was started again", |_| {
            let now = pid()?;
            Ok(now != was && now.trim() != "0")
        })?;
        self.wait_joined()
    }

    /// Waits until every broker has joined, whether or not Flux counts its node as online.
    pub fn wait_joined(&self) -> Result<()> {
        let all = self.cluster.bed().nodes().len();
        self.wait("every broker has joined", |flux| Ok(flux.joined().is_ok_and(|joined| joined == all)))
    }

    /// Returns the number of brokers that have joined, whether or not Flux counts their nodes as online.
    fn joined(&self) -> Result<usize> {
        let answer = self.rpc("groups.get", &json!({"name": "broker.online"}))?;
        let members = answer.payload["members"].as_str().with_context(|| format!("no members: {answer:?}"))?;
        let members: perilog_core::IdSet = members.parse()?;
        Ok(usize::try_from(members.len())?)
    }
}
