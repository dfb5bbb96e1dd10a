//! Product under test: an installed directory tree whose `usr` a bed lays over `/usr` of its nodes.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Binaries that packages install, each with its directory.
const BINARIES: [(&str, &str); 6] = [
    ("perilog", "usr/bin"),
    ("perilog-report", "usr/bin"),
    ("perilog-agent", "usr/sbin"),
    ("perilog-controller", "usr/sbin"),
    ("perilog-flux", "usr/sbin"),
    ("perilog-runner", "usr/libexec/perilog"),
];
/// File name of Flux's plugin in the build directory, and its path on a node. The build directory may lack the plugin,
/// which `cargo build --bins` does not make. Only tests with a real Flux need it.
const PLUGIN: (&str, &str) = ("libperilog_hold.so", "usr/lib/perilog/perilog-hold.so");
/// File name of a static runner in the build directory, which `cargo xtask bench` and `dist` make where they can, and
/// the name that the other runner then has on a node (`packaging/install.sh`).
const STATIC_RUNNER: (&str, &str) = ("perilog-runner-static", "perilog-runner-nss");
const UNITS: &str = "usr/lib/systemd/system";
/// Directories of the source tree that packages install as they are, with all below them: from, to, and the mode of
/// each file.
const SHARED: [(&str, &str, u32); 4] = [
    ("packaging/ansible", "usr/share/perilog/ansible", 0o644),
    ("scripts", "usr/share/perilog/scripts", 0o755),
    ("packaging/agent.d", "usr/share/perilog/agent.d", 0o644),
    ("python/perilog", "usr/lib/python3/dist-packages/perilog", 0o644),
];

/// Environment variable: directory that [`Layer::install`] has filled. xtask sets it, so that test programs share one
/// directory.
pub const LAYER_VARIABLE: &str = "PERILOG_LAYER";
/// Environment variable: directory of the built binaries, for tests without [`LAYER_VARIABLE`]. Without both, the tests
/// look in the build directory of the test program.
pub const BINARIES_VARIABLE: &str = "PERILOG_BIN_DIR";

/// Source of the product that a bed tests.
#[derive(Debug, Clone)]
pub enum Layer {
    /// A directory that [`Layer::install`] has filled.
    Installed(PathBuf),
    /// A directory of built binaries. Each bed installs them, together with files of the source tree, into a directory
    /// of its own.
    Built(PathBuf),
}

impl Layer {
    /// Finds the product to test: by [`LAYER_VARIABLE`], else by [`BINARIES_VARIABLE`], else in the build directory of
    /// this test program.
    pub fn find() -> Result<Self> {
        if let Some(path) = std::env::var_os(LAYER_VARIABLE) {
            return Ok(Self::Installed(path.into()));
        }
        if let Some(path) = std::env::var_os(BINARIES_VARIABLE) {
            return Ok(Self::Built(path.into()));
        }
        // target/<profile>/deps/<test program>
        let program = std::env::current_exe().context("the path of this program")?;
        let profile = program.ancestors().find(|path| path.join("deps").is_dir());
        profile.map(|path| Self::Built(path.to_owned())).with_context(|| {
            format!("no directory of built binaries above {}: set {BINARIES_VARIABLE}", program.display())
        })
    }

    /// Fills `root` as a package would fill `/`: binaries from `binaries`, everything else from the source tree.
    pub fn install(binaries: &Path, root: &Path) -> Result<()> {
        for (name, directory) in BINARIES {
            let from = binaries.join(name);
            ensure!(from.is_file(), "no {}: run `cargo build --workspace --bins` first", from.display());
            put(&from, &root.join(directory).join(name), 0o755)?;
        }
        let quick = binaries.join(STATIC_RUNNER.0);
        if quick.is_file() {
            let runners = root.join("usr/libexec/perilog");
            let rename = std::fs::rename(runners.join("perilog-runner"), runners.join(STATIC_RUNNER.1));
            rename.context("renaming the runner")?;
            put(&quick, &runners.join("perilog-runner"), 0o755)?;
        }
        let plugin = binaries.join(PLUGIN.0);
        if plugin.is_file() {
            put(&plugin, &root.join(PLUGIN.1), 0o644)?;
        }
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (from, to, mode) in SHARED {
            put_all(&tree.join(from), &root.join(to), mode)?;
        }
        install_units(&tree.join("units"), root)
    }

    /// Returns the directory of the installed product. If the product is only built, first installs it into a directory
    /// below `bed`, the bed's own directory.
    pub(crate) fn path_for(&self, bed: &Path) -> Result<PathBuf> {
        match self {
            Self::Installed(path) => Ok(path.clone()),
            Self::Built(binaries) => {
                let root = bed.join("layer");
                Self::install(binaries, &root)?;
                Ok(root)
            }
        }
    }
}

/// Returns the paths of a directory's entries.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>();
    read().with_context(|| format!("reading {}", directory.display()))
}

/// Installs the source tree's units at the paths where `packaging/install.sh` installs them.
fn install_units(units: &Path, root: &Path) -> Result<()> {
    for from in files(units)? {
        let (Some(name), Some(stem)) = (from.file_name(), from.file_stem()) else { bail!("no file name: {from:?}") };
        let kind = from.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        let to = match kind {
            "service" | "socket" | "timer" | "slice" => root.join(UNITS).join(name),
            "sysusers" | "tmpfiles" => {
                root.join(format!("usr/lib/{kind}.d")).join(format!("{}.conf", stem.to_string_lossy()))
            }
            // Drop-ins of a unit.
            "d" => {
                for from in files(&from)? {
                    put(&from, &root.join(UNITS).join(name).join(from.file_name().unwrap_or_default()), 0o644)?;
                }
                continue;
            }
            // Files that enable units: a bed enables units itself.
            _ => continue,
        };
        put(&from, &to, 0o644)?;
    }
    Ok(())
}

fn put_all(from: &Path, to: &Path, mode: u32) -> Result<()> {
    for from in files(from)? {
        let to = to.join(from.file_name().unwrap_or_default());
        if from.is_dir() { put_all(&from, &to, mode)? } else { put(&from, &to, mode)? }
    }
    Ok(())
}

/// Installs a file, owned by root, with this mode. Hard-links the file if it has this owner and mode already, because
/// debug binaries are large.
fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let put = || -> std::io::Result<()> {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let metadata = from.metadata()?;
        let same = metadata.uid() == 0 && metadata.mode() & 0o7777 == mode;
        if !(same && std::fs::hard_link(from, to).is_ok()) {
            std::fs::copy(from, to)?;
            std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    };
    put().with_context(|| format!("installing {} as {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_is_named_with_what_to_run() {
        let error = Layer::install(Path::new("/nowhere"), Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/perilog:") && error.contains("cargo build"), "{error}");
    }
}
