//! Distributions of the nodes of a run: this machine's, or those of roots ([`crate::roots`]) into which this program,
//! as root, installs the product's packages with the root's own apt.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::stages::print_line;

/// Distributions of the nodes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bases {
    /// This machine's. The product is a layer over `/usr`.
    Here,
    /// Base of a root: a directory, or an archive of one.
    Of(PathBuf),
    /// This machine's, and those of several roots for the tests whose nodes differ.
    Several(Vec<PathBuf>),
}

/// Directories of unpacked roots.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Distribution of all nodes, with the product installed; `None`: this machine's.
    pub(super) installed: Option<PathBuf>,
    /// The same distribution without the product, for tests that install it themselves.
    pub(super) bare: Option<PathBuf>,
    /// Distributions with the product installed, for tests whose nodes differ.
    pub(super) several: Vec<PathBuf>,
}

/// Installs packages in a root, in namespaces of its own: install.sh ROOT PACKAGE... (paths in the root).
const INSTALL: &str = r#"root=$1 && shift
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit
exec chroot "$root" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    apt-get -q -y --no-install-recommends -oDir::State::lists=/run/no-lists -oDpkg::Options::=--force-unsafe-io \
    install "$@""#;
/// Directory in a root for the packages to install.
const HANDED: &str = "root/packages";

impl Bases {
    /// Returns the argument from which [`Bases::read`] reads this value.
    pub(super) fn word(&self) -> Result<String> {
        let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path in UTF-8");
        Ok(match self {
            Self::Here => "here".to_owned(),
            Self::Of(root) => format!("of:{}", text(root)?),
            Self::Several(roots) => {
                format!("several:{}", roots.iter().map(text).collect::<Result<Vec<_>>>()?.join(":"))
            }
        })
    }

    pub(super) fn read(word: &str) -> Result<Self> {
        Ok(match word.split_once(':') {
            None if word == "here" => Self::Here,
            Some(("of", root)) => Self::Of(root.into()),
            Some(("several", roots)) => Self::Several(roots.split(':').map(PathBuf::from).collect()),
            _ => bail!("no distributions: {word}"),
        })
    }

    /// Unpacks the roots below `directory`, and installs the packages (.deb) of the directory `packages`.
    pub(super) fn prepare(&self, directory: &Path, packages: &Path) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        match self {
            Self::Here => {}
            Self::Of(root) => {
                let bare = directory.join("bare");
                unpack(root, &bare)?;
                let installed = directory.join("installed");
                unpack(&bare, &installed)?;
                install(packages, &installed)?;
                (prepared.bare, prepared.installed) = (Some(bare), Some(installed));
            }
            Self::Several(roots) => {
                for (index, root) in roots.iter().enumerate() {
                    let installed = directory.join(format!("installed-{index}"));
                    unpack(root, &installed)?;
                    install(packages, &installed)?;
                    prepared.several.push(installed);
                }
            }
        }
        Ok(prepared)
    }
}

/// Makes the directory `to` with the files of a root.
fn unpack(root: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to).with_context(|| format!("making {}", to.display()))?;
    let mut command = if root.is_dir() {
        let mut command = Command::new("cp");
        command.args(["-a", "--reflink=auto", "--one-file-system"]).arg(root.join(".")).arg(to);
        command
    } else {
        let mut command = Command::new("tar");
        command.args(["--zstd", "--numeric-owner", "--xattrs", "--xattrs-include=*", "-xpf"]).arg(root);
        command.arg("-C").arg(to);
        command
    };
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("unpacking {}", root.display()))?;
    ensure!(status.success(), "unpacking {}: {status}", root.display());
    Ok(())
}

/// Installs all packages (.deb) of a directory in a root, with the root's own apt and without a network.
fn install(packages: &Path, root: &Path) -> Result<()> {
    let handed = root.join(HANDED);
    std::fs::create_dir_all(&handed).with_context(|| format!("making {}", handed.display()))?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(packages).with_context(|| format!("reading {}", packages.display()))? {
        let path = entry.with_context(|| format!("reading {}", packages.display()))?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|found| found == "deb")) {
            std::fs::copy(&path, handed.join(name)).with_context(|| format!("copying {}", path.display()))?;
            names.push(format!("/{HANDED}/{}", name.to_string_lossy()));
        }
    }
    ensure!(!names.is_empty(), "no packages in {}", packages.display());
    names.sort();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", INSTALL, "sh"]);
    let output = command.arg(root).args(&names).stdin(Stdio::null()).output().context("running unshare")?;
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "installing the packages in {}: {}\n{printed}", root.display(), output.status);
    std::fs::remove_dir_all(&handed).with_context(|| format!("removing {}", handed.display()))?;
    print_line(&format!("the packages are installed in {}, by its own apt", system(root)))
}

/// Returns the name of the system below a root.
fn system(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| root.display().to_string(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line_are_read_back() {
        for bases in [Bases::Here, Bases::Of("/r/sid.tar.zst".into()), Bases::Several(vec!["/a".into(), "/b".into()])] {
            assert_eq!(Bases::read(&bases.word().unwrap()).unwrap(), bases);
        }
        assert!(Bases::read("there").is_err());
    }
}
