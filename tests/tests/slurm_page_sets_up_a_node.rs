//! The section "On each node" of docs/slurm.md, typed to the letter on a node with the packages' files: the drop-ins,
//! the lines of slurm.conf, and the try without Slurm. A job then runs each script once.

use anyhow::{Context, Result, ensure};
use perilog_tests::Cluster;
use perilog_tests::slurm::Slurm;

const PAGE: &str = include_str!("../../docs/slurm.md");
/// Files of the packages that the page names.
const PACKAGED: [(&str, &str); 2] = [
    ("/usr/share/perilog/agent.d/slurm.toml", include_str!("../../packaging/agent.d/slurm.toml")),
    (
        "/usr/share/doc/perilog/examples/slurm/slurmd-waits.conf",
        include_str!("../../docs/examples/slurm/slurmd-waits.conf"),
    ),
];

/// Returns the lines of each block of this kind (`console`, `ini`) in the section "On each node".
fn blocks(kind: &str) -> Result<Vec<Vec<&'static str>>> {
    let (_, after) = PAGE.split_once("\n## On each node\n").context("no section \"On each node\"")?;
    let (section, _) = after.split_once("\n## ").context("no section after it")?;
    let blocks = section.split("```").skip(1).step_by(2);
    Ok(blocks
        .filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n'))
        .map(|block| block.lines().map(str::trim).filter(|line| !line.is_empty()).collect())
        .collect())
}

#[test]
fn a_node_that_is_set_up_as_the_page_says_runs_each_script_once() -> Result<()> {
    let (typed, settings) = (blocks("console")?, blocks("ini")?.concat().join("\n"));
    let [links, waits, tries] = &typed[..] else { anyhow::bail!("three blocks of commands, not {typed:?}") };
    let cluster =
        Cluster::builder(1).script("prolog", "50-site", "exit 0").script("epilog", "50-site", "exit 0").boot()?;
    let node = cluster.node(0)?;
    for (path, text) in PACKAGED {
        node.write_file(path, text)?;
    }
    let types = |lines: &[&str]| -> Result<Vec<String>> {
        lines.iter().map(|line| node.sh(line.strip_prefix("# ").context("a command of root's")?)).collect()
    };
    node.sh("mkdir -p /etc/perilog/agent.d")?;
    types(links)?;
    let slurm = Slurm::start(&cluster, &format!("{settings}\n"))?;
    node.sh("rm /etc/systemd/system/slurmd.service.d/perilog.conf")?;
    types(waits)?;
    node.systemctl(&["restart", "slurmd"])?;
    slurm.ask(&["scontrol", "reconfigure"])?;
    let doctor = node.run(&["perilog", "doctor", "node"])?.stdout;
    let of_slurm: Vec<_> = doctor.lines().filter(|line| line.contains(" slurm ")).collect();
    ensure!(of_slurm.len() == 4 && of_slurm.iter().all(|line| line.trim_start().starts_with("ok")), "{doctor}");
    let output = types(tries)?;
    ensure!(output.len() == 3 && output[1..].iter().all(|output| output.lines().last() == Some("0")), "{output:?}");

    let job = slurm.submit(1, "true")?;
    slurm.wait_job(&job, "COMPLETED")?;
    slurm.wait_node(0, "IDLE")?;
    slurm.ensure_ran(&job, &[(0, "prolog", "0", 0), (0, "epilog", "0", 0)])
}
