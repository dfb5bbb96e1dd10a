//! Real node with an agent that is configured as on a site. The bench's program runs on the node, too, and plays the
//! controller.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perilog_tests::{Cluster, Layer, Node};
use serde_json::Value;

use super::node::{CERTIFICATES, PROGRAM};
use perilog_bench::options::Options;

/// Time limit for a part of a measurement, which no part reaches, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct NodeBed {
    cluster: Cluster,
}

impl NodeBed {
    pub(crate) fn boot() -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let binaries = program.parent().context("a directory of programs")?.to_owned();
        let cluster = Cluster::builder(1).layer(Layer::Built(binaries)).build()?;
        let node = cluster.node(0)?;
        // The bed's controller stays off. This program runs on the node itself in its place, so that one process
        // measures everything.
        node.write_file(
            "/etc/perilog/agent.d/bench.toml",
            format!("controller = [\"{}:5115\"]\n[action.prolog]\n", node.name()),
        )?;
        let bytes = |path: &Path| std::fs::read(path).with_context(|| format!("reading {}", path.display()));
        node.write_script("/etc/perilog/prolog.d/10-noop", bytes(Path::new("/bin/true"))?)?;
        node.write_script(PROGRAM, bytes(&program)?)?;
        certificates(&cluster, node)?;
        node.boot()?;
        Ok(Self { cluster })
    }

    /// Runs this program's command `part` (such as `node-unit`) on the node until it ends, and returns the JSON report
    /// that the command prints.
    pub(crate) fn run(&self, part: &str, options: &Options) -> Result<Value> {
        let arguments = options.arguments();
        let command: Vec<&str> = [PROGRAM, part].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let node = self.cluster.node(0)?;
        let output = node.run_within(LIMIT, &command)?;
        ensure!(output.success(), "{output}\n{}", node.diagnosis());
        serde_json::from_str(&output.stdout).with_context(|| format!("what {part} reports: {}", output.stdout))
    }
}

/// Issues a controller's certificate in the node's name, by the authority that signed the node's own certificate.
fn certificates(cluster: &Cluster, node: &Node) -> Result<()> {
    let (authority, out) = (cluster.bed().directory().join("ca"), cluster.bed().directory().join("bench"));
    let mut command = Command::new(cluster.bed().layer().join("usr/bin/perilog"));
    command.args(["--quiet", "ca", "issue", "--role", "controller", "--dir"]).arg(&authority).arg("--out").arg(&out);
    let output = command.arg(node.name()).output().context("running perilog ca")?;
    ensure!(output.status.success(), "perilog ca: {}", String::from_utf8_lossy(&output.stderr));
    for (name, mode) in [("ca.pem", 0o644), ("cert.pem", 0o644), ("key.pem", 0o600)] {
        let bytes = std::fs::read(out.join(node.name()).join(name)).with_context(|| format!("reading {name}"))?;
        node.write_with_mode(&format!("{CERTIFICATES}/{name}"), bytes, mode)?;
    }
    Ok(())
}
