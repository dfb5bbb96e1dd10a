//! The packaged `slurm.toml` (`packaging/agent.d`), linked as docs/slurm.md says. A prolog and an epilog get every
//! variable that a real slurmd gives its own scripts, with its value, except SLURM_CONF.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use perilog_tests::slurm::Slurm;
use perilog_tests::{Cluster, Node};

/// Script in place of the packaged hook: records the variables that slurmd gives, and executes the packaged hook.
const NOTES: &str = "#!/bin/sh\nenv -0 >/run/given-$SLURM_SCRIPT_CONTEXT\nexec \
                     /usr/libexec/perilog/slurm/${SLURM_SCRIPT_CONTEXT%_slurmd}\n";
const SHOWS: &str = "env -0 >/run/found-$SLURM_SCRIPT_CONTEXT";

/// Returns the variables in that file of a node whose names begin with `SLURM`.
fn variables(node: &Node, file: &str) -> Result<BTreeMap<String, String>> {
    let text = node.read_file(file)?;
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    let slurms = pairs.filter(|(name, _)| name.starts_with("SLURM"));
    Ok(slurms.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[test]
fn every_variable_of_slurmd_but_slurm_conf() -> Result<()> {
    let cluster = Cluster::builder(1).script("prolog", "10-show", SHOWS).script("epilog", "10-show", SHOWS).boot()?;
    let node = cluster.node(0)?;
    node.sh(
        "ln -s /usr/share/perilog/agent.d/slurm.toml /etc/perilog/agent.d/slurm.toml && systemctl reload perilog-agent",
    )?;
    node.write_script("/root/notes", NOTES)?;
    let slurm = Slurm::start(&cluster, "Prolog=/root/notes\nEpilog=/root/notes\n")?;
    // What a job has only if it asks for it.
    let asked = ["--comment=it's a test", "--constraint=big", "--account=alpha"];
    slurm.ask(&["scontrol", "update", "nodename=n0", "features=big", "activefeatures=big"])?;
    let job = ["runuser", "-u", "alice", "--", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null"];
    let job = slurm.ask(&[&job[..], &asked, &["--wrap=exit 3"]].concat())?;
    slurm.wait("the epilog has run", |_| Ok(node.run(&["test", "-s", "/run/found-epilog_slurmd"])?.success()))?;
    for (context, reported) in [("prolog_slurmd", "SLURM_JOB_COMMENT"), ("epilog_slurmd", "SLURM_JOB_EXIT_CODE2")] {
        let mut given = variables(node, &format!("/run/given-{context}"))?;
        let found = variables(node, &format!("/run/found-{context}"))?;
        ensure!(given.remove("SLURM_CONF").is_some(), "{given:?}");
        assert_eq!(found, given, "{context}");
        assert_eq!(found.get("SLURM_JOB_ID"), Some(&job));
        assert_eq!(found.get("SLURM_SCRIPT_CONTEXT").map(String::as_str), Some(context));
        ensure!(found.len() > 12, "{found:?}");
        found.get(reported).with_context(|| format!("no {reported}: {found:?}"))?;
    }
    Ok(())
}
