//! Command line of perilog-agent: it checks a configuration and prints it with the origin of each value. The packaged
//! drop-ins fit the installed configuration, and the guides have administrators link them.

// In tests a panic is a verdict; the lint recognises test functions, but not their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The configuration that packages install.
const INSTALLED: &str = include_str!("../../packaging/agent.toml");
/// File name of each packaged drop-in of agent.toml, with the text of the guide that describes it.
const DROP_INS: [(&str, &str); 2] =
    [("slurm.toml", include_str!("../../docs/slurm.md")), ("flux.toml", include_str!("../../docs/flux.md"))];

struct Etc(tempfile::TempDir);

impl Etc {
    fn new(config: &str) -> Self {
        let etc = Self(tempfile::tempdir().unwrap());
        fs::write(etc.file(), config).unwrap();
        fs::create_dir(etc.0.path().join("agent.d")).unwrap();
        etc
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("agent.toml")
    }

    fn drop_in(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join("agent.d").join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs perilog-agent with the option `act`; returns exit status, standard output and standard error.
    fn agent(&self, act: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perilog-agent"));
        let output = command.arg("--config").arg(self.file()).arg(act).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// Asserts that `printed` has a line that begins with `assignment` (`key = value`) and names `origin` as the value's
/// origin.
fn assert_from(printed: &str, assignment: &str, origin: &str) {
    let line = printed.lines().find(|line| line.starts_with(assignment));
    let line = line.unwrap_or_else(|| panic!("no {assignment} in\n{printed}"));
    assert!(line.ends_with(&format!("# {origin}")), "{line}: not from {origin}");
}

fn at(file: &Path, line: usize) -> String {
    format!("{}:{line}", file.display())
}

#[test]
fn each_value_is_printed_with_where_it_is_from() {
    let etc = Etc::new("host = \"n7\"\nmax-tasks = 7\n");
    let drop_in = etc.drop_in("site.toml", "# The site's.\nmax-tasks = 9\n\n[action.prolog]\ntimeout = \"10m\"\n");
    let (code, printed, errors) = etc.agent("--print-config");
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let read: Vec<String> = [&etc.file(), &drop_in].map(|file| format!("# read: {}", file.display())).into();
    assert_eq!(printed.lines().take(2).collect::<Vec<_>>(), read);
    assert_from(&printed, "host = \"n7\"", &at(&etc.file(), 1));
    assert_from(&printed, "max-tasks = 9", &at(&drop_in, 2));
    assert_from(&printed, "timeout = \"600s\"", &at(&drop_in, 5));
    assert_from(&printed, "keep-failed = 0", "default");
    // The output is itself a configuration.
    let again = Etc::new(&printed);
    assert_eq!(again.agent("--check-config").0, Some(0));
}

#[test]
fn a_wrong_configuration_is_pointed_at_and_the_status_is_2() {
    let etc = Etc::new("max-task = 7\n");
    let drop_in = etc.drop_in("site.toml", "[action.prolog]\ntimeout = \"5x\"\n");
    for act in ["--check-config", "--print-config"] {
        let (code, printed, errors) = etc.agent(act);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{errors}");
        assert!(
            errors.contains(&format!("{}:11: ", at(&drop_in, 2))) && errors.contains("malformed duration"),
            "{errors}"
        );
        assert!(errors.contains(&at(&etc.file(), 1)) && errors.contains("did you mean `max-tasks`?"), "{errors}");
    }
    assert_eq!(etc.agent("--frob").0, Some(2));
}

/// Regression test: a guide had administrators write `env-allow` into agent.toml, which already had that key. Then no
/// agent of the cluster started.
#[test]
fn packaged_drop_ins_fit_the_installed_configuration_as_links() {
    for (name, guide) in DROP_INS {
        let link = format!("# ln -s /usr/share/perilog/agent.d/{name} /etc/perilog/agent.d/{name}\n");
        assert!(guide.contains(&link), "the guide has no {link}");
        let etc = Etc::new(INSTALLED);
        let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/agent.d").join(name);
        let drop_in = etc.0.path().join("agent.d").join(name);
        std::os::unix::fs::symlink(&packaged, &drop_in).unwrap();
        let (code, _, errors) = etc.agent("--check-config");
        assert_eq!(code, Some(0), "{name}: {errors}");
        let (_, printed, _) = etc.agent("--print-config");
        let text = fs::read_to_string(&packaged).unwrap();
        let of = |key: &str| text.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        assert_from(&printed, "serialize = \"host\"", &at(&drop_in, of("serialize")));
        assert_from(&printed, "env-allow = [\"", &at(&drop_in, of("env-allow")));
        // Programs of Slurm and Flux read these.
        for accepted in ["SLURM_CONF", "FLUX_URI", "FLUX_CONNECTOR_PATH", "SPANK_"] {
            assert!(!text.contains(&format!("\"{accepted}")), "{name} has {accepted}");
        }
    }
}
