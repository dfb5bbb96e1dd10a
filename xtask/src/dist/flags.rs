//! Arguments of rustc for the programs that sites get: no path of the machine that builds gets into them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cargo;

/// Environment variable with arguments of rustc, between which are unit separators. For cargo it goes before all other
/// ways to name such arguments, so a setting of the user changes no package.
const VARIABLE: &str = "CARGO_ENCODED_RUSTFLAGS";

/// Has cargo pass these arguments to rustc.
pub(super) fn pass(command: &mut Command, flags: &[String]) {
    command.env(VARIABLE, flags.join("\u{1f}"));
}

/// Returns the arguments with which programs name neither this source tree nor cargo's directories: panics name source
/// files, those of dependencies with their whole paths.
pub(super) fn without_paths() -> Result<Vec<String>> {
    Ok(renamed(&cargo::root(), &cargo::target()?, &cargo::home()?))
}

/// Returns the arguments that rename these directories. Where one is below another, the last that matches counts.
fn renamed(root: &Path, target: &Path, home: &Path) -> Vec<String> {
    let names = [(root, "/perilog"), (target, "/perilog/target"), (home, "/cargo")];
    names.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name that rustc gives to a path.
    fn name(flags: &[String], path: &str) -> String {
        let pairs = flags.iter().filter_map(|flag| flag.strip_prefix("--remap-path-prefix=")?.split_once('='));
        let mut found =
            pairs.filter_map(|(from, to)| Some(Path::new(to).join(Path::new(path).strip_prefix(from).ok()?)));
        found.next_back().map_or_else(|| path.to_owned(), |name| name.display().to_string())
    }

    #[test]
    fn programs_of_two_users_have_the_same_names_of_files() {
        let one = ["/home/a/perilog", "/home/a/perilog/target", "/home/a/.cargo"];
        for other in [["/srv/p", "/scratch/t", "/opt/cargo"], ["/p", "/p/target", "/p/target/cargo"]] {
            let flags = |of: [&str; 3]| renamed(Path::new(of[0]), Path::new(of[1]), Path::new(of[2]));
            for (at, file) in [(0, "core/src/lib.rs"), (1, "release/build/x/out/a.rs"), (2, "registry/src/i/z/lib.rs")]
            {
                let of = |paths: [&str; 3]| name(&flags(paths), &format!("{}/{file}", paths[at]));
                assert!(of(one) == of(other) && !of(one).starts_with(one[at]), "{} {}", of(one), of(other));
            }
        }
    }

    #[test]
    fn arguments_with_spaces_stay_whole() {
        let mut command = Command::new("cargo");
        pass(&mut command, &["--remap-path-prefix=/a b=/perilog".to_owned(), "-Cx".to_owned()]);
        let set: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        let expected = "--remap-path-prefix=/a b=/perilog\u{1f}-Cx";
        assert_eq!(set, [("CARGO_ENCODED_RUSTFLAGS".into(), Some(expected.into()))]);
    }
}
