//! Programs for systems that are older than this one: linked against the C library of the oldest release of Debian for
//! which there are packages (docs/decisions/0035). Where that library is not to be had, programs are built for this
//! machine's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{PROGRAMS, cut, flags, succeed, symbols};
use crate::stages::print_line;
use crate::{cargo, prerequisites, roots};

/// Version of the compiler whose runtime library is among the files.
const COMPILER: &str = "10";
/// Packages of the oldest release that have the C library's files, and the compiler's runtime library.
const PACKAGES: &str = "libc6-dev,libgcc-10-dev";
/// Files that a build needs of these packages, below the root.
const UNPACKED: [&str; 3] = ["./lib", "./lib64", "./usr"];

/// How cargo builds programs that other systems can run.
#[derive(Debug, Clone)]
pub(crate) struct Portable {
    /// The target's name, such as `x86_64-unknown-linux-gnu`: named to cargo, so that its own programs (build scripts)
    /// are built for this machine.
    triple: String,
    /// Directory with the C library's files: it stands for `/` to the linker and to the C compiler.
    system: PathBuf,
}

impl Portable {
    /// Gets the C library's files. `None`: this machine cannot have them, which this function has reported.
    pub(crate) fn find() -> Result<Option<Self>> {
        if !prerequisites::makes_roots() {
            print_line("programs ask for this machine's glibc: an older one is had where there is apt")?;
            return Ok(None);
        }
        let Some(archive) = roots::c_library(PACKAGES)? else {
            print_line("NOT PORTABLE: programs ask for this machine's glibc")?;
            return Ok(None);
        };
        let system = roots::directory()?.join("c-library");
        if !is_newer(&system, &archive) {
            unpack(&archive, &system)?;
        }
        Ok(Some(Self { triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH), system }))
    }

    /// Adds arguments of cargo, and variables of its environment, for a build in the directory `from`. `more`: further
    /// arguments of rustc.
    pub(super) fn apply(&self, command: &mut Command, from: &Path, more: Vec<String>) {
        command.args(["--target", &self.triple]);
        let name = self.triple.replace('-', "_");
        let system = self.system.strip_prefix(from).unwrap_or(&self.system);
        let libraries = ["usr/lib", "lib", "usr/lib/gcc"].map(|place| system.join(place).join(multiarch()));
        let [first, second, compiler] = libraries.each_ref().map(|path| path.display());
        let linker = [
            format!("--sysroot={}", system.display()),
            // gcc looks for start files and libraries beside itself first.
            format!("-B{first}"),
            format!("-L{first}"),
            format!("-L{second}"),
            // A newer unwinder asks for a newer glibc, where it is linked statically (host/build.rs).
            format!("-L{compiler}/{COMPILER}"),
            // Libraries that were cut back miss each other's symbols. What a program misses is an error all the same.
            "-Wl,--allow-shlib-undefined".to_owned(),
        ];
        let mut arguments = linker.map(|flag| format!("-Clink-arg={flag}")).to_vec();
        arguments.extend(more);
        flags::pass(command, &arguments);
        command.env(format!("CFLAGS_{name}"), format!("--sysroot={}", self.system.display()));
    }

    /// Returns the directory with the C library's files, and with what its package says of their symbols.
    pub(super) fn system(&self) -> &Path {
        &self.system
    }

    /// Returns the directory below cargo's target directory in which programs of this profile are.
    pub(super) fn programs(&self, target: &Path, profile: &str) -> PathBuf {
        target.join(&self.triple).join(profile)
    }
}

/// Builds the product's programs; returns their directory. `release`: as sites get them; otherwise as tests do, with
/// the features for tests.
pub(crate) fn build(portable: Option<&Portable>, release: bool) -> Result<PathBuf> {
    let (profile, options) = match release {
        true => ("release", &["--release", "--locked"][..]),
        false => ("debug", &cargo::TEST_FEATURES[..]),
    };
    let mut command = cargo::command();
    command.arg("build").args(options).args(PROGRAMS);
    let target = cargo::target()?;
    let Some(portable) = portable else {
        let status = command.status().context("running cargo")?;
        ensure!(status.success(), "the programs cannot be built");
        return Ok(target.join(profile));
    };
    // What sites get is the same wherever it is built: with relative paths, and other names for absolute ones. Tests
    // share libraries with the build of an earlier commit, which is in another directory.
    let (from, more) = match release {
        true => (cargo::root(), flags::without_paths()?),
        false => (PathBuf::from("/nowhere"), Vec::new()),
    };
    portable.apply(&mut command, &from, more);
    let status = command.status().context("running cargo")?;
    ensure!(status.success(), "the programs cannot be built for older systems");
    Ok(portable.programs(&target, profile))
}

/// Returns `true` if a directory was made from an archive as it is now.
fn is_newer(directory: &Path, archive: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|found| found.modified()).ok();
    time(directory).zip(time(archive)).is_some_and(|(directory, archive)| directory >= archive)
}

fn unpack(archive: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    for directory in [&new, &to.to_owned()] {
        if directory.exists() {
            std::fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
        }
    }
    std::fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
    let mut tar = Command::new("tar");
    tar.args(["--zstd", "--no-same-owner", "-xf"]).arg(archive).arg("-C").arg(&new).args(UNPACKED);
    succeed(&mut tar)?;
    relink(&new, &new)?;
    cut_back(&new)?;
    // Where dpkg-shlibdeps looks in the directory of a package.
    std::fs::create_dir(new.join("DEBIAN")).context("making DEBIAN")?;
    std::fs::rename(new.join("usr/symbols"), new.join("DEBIAN/symbols")).context("the C library's symbols")?;
    std::fs::rename(&new, to).with_context(|| format!("making {}", to.display()))
}

/// Cuts the C library's shared objects back to the version that programs may ask for.
fn cut_back(root: &Path) -> Result<()> {
    let directory = root.join("lib").join(multiarch());
    for entry in std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        if path.is_symlink() || !path.is_file() {
            continue;
        }
        let mut file = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        if cut::cut(&mut file, symbols::NEWEST).with_context(|| path.display().to_string())? > 0 {
            std::fs::write(&path, file).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the name of the directory in which Debian has libraries of this kind of processor.
fn multiarch() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// Makes the absolute symbolic links below `directory` relative: `libdl.so` would otherwise be this machine's.
fn relink(root: &Path, directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            relink(root, &path)?;
        } else if let Ok(target) = std::fs::read_link(&path)
            && let Ok(inside) = target.strip_prefix("/")
        {
            let above = directory.strip_prefix(root).context("a path below the root")?.components().count();
            let relative = (0..above).map(|_| "..").collect::<PathBuf>().join(inside);
            std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            let link = std::os::unix::fs::symlink(&relative, &path);
            link.with_context(|| format!("linking {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_the_old_library_and_further_arguments() {
        let portable = Portable { triple: "m-unknown-linux-gnu".to_owned(), system: PathBuf::from("/w/target/old") };
        let mut command = Command::new("cargo");
        portable.apply(&mut command, Path::new("/w"), vec!["--further".to_owned()]);
        let value = |name: &str| command.get_envs().find(|(found, _)| *found == name).and_then(|(_, value)| value);
        let arguments = value("CARGO_ENCODED_RUSTFLAGS").unwrap().to_str().unwrap();
        assert!(arguments.starts_with("-Clink-arg=--sysroot=target/old\u{1f}"), "{arguments:?}");
        assert!(arguments.ends_with("\u{1f}--further"), "{arguments:?}");
        assert_eq!(value("CFLAGS_m_unknown_linux_gnu").unwrap(), "--sysroot=/w/target/old");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--target", "m-unknown-linux-gnu"]);
    }

    #[test]
    fn links_stay_in_the_unpacked_system() {
        let root = std::env::temp_dir().join(format!("perilog-relink-{}", std::process::id()));
        std::fs::create_dir_all(root.join("usr/lib")).unwrap();
        std::os::unix::fs::symlink("/lib/libdl.so.2", root.join("usr/lib/libdl.so")).unwrap();
        std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
        relink(&root, &root).unwrap();
        assert_eq!(std::fs::read_link(root.join("usr/lib/libdl.so")).unwrap(), Path::new("../../lib/libdl.so.2"));
        assert_eq!(std::fs::read_link(root.join("lib")).unwrap(), Path::new("usr/lib"));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
