//! Certificates of a test cluster, made by the product's own `perilog ca` in the test bed's directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bed::Bed;
use crate::cluster::Cluster;
use crate::command;
use crate::layer::Layer;
use crate::node::Node;

/// Time limit of `perilog ca`, which computes a few signatures.
const CA: Duration = Duration::from_secs(60);
const TLS: &str = "/etc/perilog/tls";

impl Cluster {
    /// Revokes all certificates of these hosts; returns the authority's new revocation list (PEM). The test installs
    /// the list itself.
    pub fn revoke(&self, hosts: &[&str]) -> Result<String> {
        let authority = &self.authority;
        authority.ca(&[&["revoke"], hosts].concat())?;
        let path = authority.directory.join("crl.pem");
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// Gives the node of this rank a new certificate and key.
    pub fn reissue(&self, rank: usize) -> Result<()> {
        self.authority.issue("node", self.node(rank)?)
    }
}

#[derive(Debug)]
pub(crate) struct Authority {
    program: PathBuf,
    directory: PathBuf,
}

impl Authority {
    pub(crate) fn new(bed: &Bed, layer: &Layer) -> Result<Self> {
        let program = match layer {
            Layer::Installed(root) => root.join("usr/bin/perilog"),
            Layer::Built(binaries) => binaries.join("perilog"),
        };
        let authority = Self { program, directory: bed.directory().join("ca") };
        authority.ca(&["init"])?;
        Ok(authority)
    }

    fn ca(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.program);
        let (verb, rest) = arguments.split_first().context("a verb of `perilog ca`")?;
        command.args(["--quiet", "ca", verb, "--dir"]).arg(&self.directory).args(rest);
        command::run(format!("perilog ca {verb}"), &mut command, CA)?.ok().map(drop)
    }

    /// Issues a certificate to the daemon of that node; installs it with the key and the authority's certificate.
    /// `role` is `node` or `controller`. Replaces existing files.
    pub(crate) fn issue(&self, role: &str, node: &Node) -> Result<()> {
        self.issue_as(role, node, &[])
    }

    /// Issues a certificate as [`issue`](Self::issue) does, under the node's name and these further names and
    /// addresses.
    pub(crate) fn issue_as(&self, role: &str, node: &Node, further: &[&str]) -> Result<()> {
        let out = self.directory.join(node.name());
        let common = ["issue", "--force", "--role", role, "--out", &out.to_string_lossy(), node.name()];
        self.ca(&[&common, further].concat())?;
        for (name, mode) in [("ca.pem", 0o644), ("cert.pem", 0o644), ("key.pem", 0o600)] {
            let path: &Path = &out.join(node.name()).join(name);
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            node.write_with_mode(&format!("{TLS}/{name}"), bytes, mode)?;
        }
        Ok(())
    }
}
