//! Calls of cargo: the workspace's packages, built programs, and checks.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Returns a command for the cargo that runs this program, in the root of the workspace. Removes the variables that
/// cargo set for this package, because build scripts that depend on them would run again, with their dependents.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn root() -> PathBuf {
    // xtask/ is directly below the root.
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Returns cargo's own directory, with the sources of dependencies.
pub(crate) fn home() -> Result<PathBuf> {
    match std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty()) {
        Some(home) => std::path::absolute(home).context("the path in CARGO_HOME"),
        None => Ok(std::env::home_dir().context("neither CARGO_HOME nor HOME is set: set one")?.join(".cargo")),
    }
}

/// Runs cargo with its output to the terminal.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let status = command().args(arguments).status().context("running cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// Names of normal, build and development dependencies.
    pub(crate) dependencies: Vec<String>,
    /// Main source files of the package's programs.
    pub(crate) mains: Vec<PathBuf>,
}

/// Returns the packages of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("no packages in what `cargo metadata` says")?;
    packages.iter().map(|package| read_package(package).context("a package of `cargo metadata`")).collect()
}

/// Returns the path of cargo's target directory.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = metadata()?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("no target_directory in what `cargo metadata` says")
}

fn metadata() -> Result<Value> {
    let output = command()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo")?;
    ensure!(output.status.success(), "`cargo metadata` failed");
    serde_json::from_slice(&output.stdout).context("what `cargo metadata` says")
}

fn read_package(package: &Value) -> Option<Package> {
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    let dependencies = package["dependencies"].as_array()?.iter().filter_map(|dependency| dependency["name"].as_str());
    let targets = package["targets"].as_array()?.iter();
    let mains = targets.filter(|target| is(&target["kind"], "bin")).filter_map(|target| target["src_path"].as_str());
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        directory: manifest.parent()?.to_owned(),
        dependencies: dependencies.map(str::to_owned).collect(),
        mains: mains.map(PathBuf::from).collect(),
    })
}

fn is(kinds: &Value, kind: &str) -> bool {
    kinds.as_array().is_some_and(|kinds| kinds.iter().any(|each| each == kind))
}

/// A test program that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Name for the output, such as `perilog-core` or `perilog-tests bed`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Directory in which cargo would run the test program.
    pub(crate) directory: PathBuf,
    /// `true`: the tests of `tests/tests`, which need real nodes.
    pub(crate) on_nodes: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) tests: Vec<TestProgram>,
    /// Directory of the programs that users get.
    pub(crate) binaries: PathBuf,
}

impl Built {
    /// Returns the program with the tests on real nodes.
    pub(crate) fn on_nodes(&self) -> Result<&TestProgram> {
        self.tests.iter().find(|test| test.on_nodes).context("cargo has built no tests on real nodes")
    }
}

/// Features for tests only: fault points at which daemons can be killed (host/src/fault.rs).
pub(crate) const TEST_FEATURES: [&str; 2] =
    ["--features", "perilog-agent/fault-points,perilog-controller/fault-points"];

/// Builds every program and every test program, once and with the same features.
pub(crate) fn build_everything() -> Result<Built> {
    build(&[&["build", "--workspace", "--all-targets"], &TEST_FEATURES[..]].concat())
}

/// Builds all programs without code for tests.
pub(crate) fn build_programs() -> Result<Built> {
    build(&["build", "--workspace", "--bins"])
}

/// Builds, with support for deliberate defects, all programs that a node installs and the tests of their packages, of
/// the core and on nodes.
pub(crate) fn build_with_defects() -> Result<Built> {
    // All that a node installs: the programs that know no defect, too.
    let packages = [
        "perilog",
        "perilog-core",
        "perilog-agent",
        "perilog-controller",
        "perilog-flux",
        "perilog-hold",
        "perilog-tests",
        "perilog-disk",
    ];
    let mut arguments = vec!["build", "--lib", "--bins", "--tests"];
    arguments.extend(packages.iter().flat_map(|package| ["--package", package]));
    arguments.extend(["--features", "perilog-core/defects,perilog-agent/defects,perilog-controller/defects"]);
    build(&arguments)
}

/// Runs cargo with these arguments; returns the path of the program `name` that it has built.
pub(crate) fn build_program(arguments: &[&str], name: &str) -> Result<PathBuf> {
    let found = messages(arguments)?.into_iter().filter(|message| message["target"]["name"] == name);
    let path = found.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.with_context(|| format!("`cargo {}` built no {name}", arguments.join(" ")))
}

/// Builds the fuzz targets, with counters in the packages of the workspace (`fuzz/rustc`); returns the program. All
/// packages and their features are those of [`build_everything`], so that no dependency is built again.
pub(crate) fn build_fuzz() -> Result<PathBuf> {
    const ENGINE: &str = "perilog-agent/fault-points,perilog-controller/fault-points,perilog-fuzz/engine";
    let mut command = command();
    command.env("RUSTC_WORKSPACE_WRAPPER", root().join("fuzz/rustc")).env("CARGO_INCREMENTAL", "0");
    let arguments = ["build", "--workspace", "--test", "perilog-fuzz", "--features", ENGINE];
    let found = messages_of(command, &arguments)?.into_iter();
    let path = found.filter(|message| message["target"]["name"] == "perilog-fuzz");
    let path = path.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    path.context("cargo built no perilog-fuzz")
}

/// Runs cargo with these arguments, and returns its JSON messages.
fn messages(arguments: &[&str]) -> Result<Vec<Value>> {
    messages_of(command(), arguments)
}

fn messages_of(mut command: Command, arguments: &[&str]) -> Result<Vec<Value>> {
    command.args(arguments).args(["--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("running cargo")?;
    ensure!(output.status.success(), "`cargo {}` failed", arguments.join(" "));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("what `cargo build` says")).collect()
}

fn build(arguments: &[&str]) -> Result<Built> {
    let mut built = Built::default();
    for message in messages(arguments)? {
        read_artifact(&message, &mut built);
    }
    ensure!(!built.binaries.as_os_str().is_empty(), "`cargo {}` built no perilog-agent", arguments.join(" "));
    built.tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(built)
}

fn read_artifact(message: &Value, built: &mut Built) -> Option<()> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let target = &message["target"];
    if message["profile"]["test"] == true {
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let (package, name) = (directory.file_name()?.to_str()?.to_owned(), target["name"].as_str()?);
        let of_its_own = is(&target["kind"], "test");
        built.tests.push(TestProgram {
            name: if of_its_own || is(&target["kind"], "bin") { format!("{package}: {name}") } else { package.clone() },
            path,
            directory,
            on_nodes: package == "tests" && of_its_own,
        });
    } else if target["name"] == "perilog-agent" {
        built.binaries = path.parent()?.to_owned();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn artifacts_are_distinguished() {
        let artifact = |package: &str, kind: &str, name: &str, test: bool| {
            json!({
                "reason": "compiler-artifact", "manifest_path": format!("/w/{package}/Cargo.toml"),
                "target": {"kind": [kind], "name": name}, "profile": {"test": test},
                "executable": format!("/t/debug/{name}"),
            })
        };
        let mut built = Built::default();
        for message in [
            artifact("core", "lib", "perilog_core", true),
            artifact("tests", "lib", "perilog_tests", true),
            artifact("tests", "test", "bed", true),
            artifact("host", "test", "varlink", true),
            artifact("agent", "bin", "perilog-agent", true),
            artifact("agent", "bin", "perilog-agent", false),
            json!({"reason": "build-script-executed"}),
        ] {
            read_artifact(&message, &mut built);
        }
        let found: Vec<_> = built.tests.iter().map(|test| (test.name.as_str(), test.on_nodes)).collect();
        let expected = [
            ("core", false),
            ("tests", false),
            ("tests: bed", true),
            ("host: varlink", false),
            ("agent: perilog-agent", false),
        ];
        assert_eq!(found, expected);
        assert_eq!(built.binaries, PathBuf::from("/t/debug"));
    }
}
