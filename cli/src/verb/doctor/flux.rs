//! Checks of the edge of Flux: its state, its permissions at the controller, how much Flux forgets in a crash, and
//! whether Flux runs jobs of its users.

use std::os::unix::fs::MetadataExt;

use toml::Table;

use super::{Finding, config, shell};

const ABOUT: &str = "flux";
const UNIT: &str = "perilog-flux.service";

pub(super) fn look(controller: Option<&Table>) -> Vec<Finding> {
    let asked = ["show", UNIT, "--property", "LoadState,UnitFileState,ActiveState,StatusText"];
    let Ok(shown) = shell::ask("systemctl", &asked) else { return Vec::new() };
    let get = |name: &str| {
        let value = shown.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default()
    };
    let is_used = get("UnitFileState") == "enabled" || get("ActiveState") == "active";
    if get("LoadState") != "loaded" || !is_used {
        return Vec::new();
    }
    let mut findings = vec![edge(get("ActiveState"), get("StatusText"))];
    findings.extend(controller.map(settings).unwrap_or_default());
    let set = |key: &str| setting(key, shell::ask("flux", &["config", "get", "--default=", key]));
    findings.push(set("kvs.checkpoint-period").map_or_else(|none| none, |period| checkpoints(&period)));
    let mode = |path: &str| std::fs::metadata(path).map(|file| (file.uid(), file.mode())).map_err(|e| e.to_string());
    findings.push(set("exec.imp").map_or_else(|none| none, |path| imp(&path, mode)));
    findings
}

/// Checks that the edge works; names the reason why the edge waits.
fn edge(state: &str, status: &str) -> Finding {
    let todo = "systemctl status perilog-flux; journalctl -u perilog-flux";
    if state != "active" {
        let what = format!("perilog-flux is {state}: jobs of Flux wait in their prologs and epilogs");
        return Finding::wrong(ABOUT, what, "systemctl start perilog-flux; journalctl -u perilog-flux");
    }
    match status.strip_prefix("waits") {
        Some(_) => Finding::warning(ABOUT, format!("perilog-flux {status}"), todo),
        None => Finding::ok(ABOUT, format!("perilog-flux: {status}")),
    }
}

/// Checks that the controller admits the edge, and that the edge drains.
fn settings(controller: &Table) -> Vec<Finding> {
    const GUIDE: &str = "/etc/perilog/controller.d/edge.toml, as in /usr/share/doc/perilog/flux.md; systemctl restart perilog-controller";
    let has = |path: &[&str]| config::text(controller, path).is_some();
    let mut findings = Vec::new();
    if !has(&["edge", "group"]) && !has(&["api", "group"]) {
        let what = "[edge] group is not set: the controller refuses perilog-flux";
        findings.push(Finding::wrong(ABOUT, what, GUIDE));
    }
    let edge = controller.get("edge").and_then(|edge| edge.get("drains")).and_then(toml::Value::as_bool);
    let has_command = controller.get("drain").and_then(|drain| drain.get("command")).is_some();
    if edge != Some(true) && !has_command {
        let what = "[edge] drains is not true, and there is no [drain] command: nodes that failed stay in use in Flux";
        findings.push(Finding::warning(ABOUT, what, GUIDE));
    }
    findings
}

/// Returns a key of Flux's configuration, empty where the key is not set. `Err`: a skipped check, with the reason.
fn setting(key: &str, said: Result<shell::Said, String>) -> Result<String, Finding> {
    match said {
        Ok(said) if said.ok => Ok(said.stdout.trim().trim_matches('"').to_owned()),
        Ok(said) => {
            let why = said.stderr.lines().next().unwrap_or("no answer").to_owned();
            Err(Finding::skipped(ABOUT, format!("flux config get {key}: {why}")))
        }
        Err(why) => Err(Finding::skipped(ABOUT, why)),
    }
}

/// Reports how much rank 0 forgets in a crash.
fn checkpoints(period: &str) -> Finding {
    match period {
        "" => Finding::warning(
            ABOUT,
            "[kvs] checkpoint-period is not set: a crash of rank 0 forgets every job since Flux was last started",
            "[kvs] checkpoint-period = \"1m\" in Flux's configuration, and a restart of rank 0",
        ),
        period => Finding::ok(ABOUT, format!("a crash of rank 0 forgets at most {period} of jobs")),
    }
}

/// Checks that Flux starts jobs as their users: through flux-imp, which belongs to root and has the setuid bit.
/// `mode` returns owner and mode of a file, or why there are none.
fn imp(path: &str, mode: impl FnOnce(&str) -> Result<(u32, u32), String>) -> Finding {
    const SETUID: u32 = 0o4000;
    match (path, mode) {
        ("", _) => Finding::warning(
            ABOUT,
            "[exec] imp is not set: Flux runs jobs of the user flux alone",
            "[exec] imp = \"/usr/libexec/flux/flux-imp\" in Flux's configuration, and a restart of Flux",
        ),
        (path, mode) => match mode(path) {
            Ok((0, mode)) if mode & SETUID != 0 => Finding::ok(ABOUT, format!("{path} starts jobs as their users")),
            Ok(_) => {
                let what = format!("{path} is not setuid root: every job of a user fails at its start");
                Finding::wrong(ABOUT, what, format!("chown root {path}; chmod u+s {path}"))
            }
            Err(why) => Finding::wrong(ABOUT, format!("[exec] imp: {path}: {why}"), "install flux-security"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_edge_says_what_it_waits_for() {
        for (state, status, level) in [
            ("active", "3 jobs of Flux with resources, 1 held", Level::Ok),
            ("active", "waits: the plugin is not loaded", Level::Warning),
            ("active", "waits for perilog's controller; 1 jobs held", Level::Warning),
            ("failed", "", Level::Wrong),
        ] {
            assert_eq!(edge(state, status).level, level, "{state} {status}");
        }
    }

    #[test]
    fn the_controller_has_to_let_the_edge_in() {
        let levels = |text: &str| {
            let found = settings(&text.parse().unwrap());
            found.into_iter().map(|finding| finding.level).collect::<Vec<_>>()
        };
        assert_eq!(levels("[edge]\ngroup = 'flux'\ndrains = true\n"), []);
        assert_eq!(levels("[api]\ngroup = 'flux'\n[drain]\ncommand = ['/x']\n"), []);
        assert_eq!(levels("[edge]\ngroup = 'flux'\n"), [Level::Warning]);
        assert_eq!(levels(""), [Level::Wrong, Level::Warning]);
    }

    #[test]
    fn a_flux_that_forgets_is_told_of() {
        let said = |text: &str, ok| Ok(shell::Said { ok, stdout: text.to_owned(), stderr: "no way\n".to_owned() });
        let level = |text: &str| setting("k", said(text, true)).map(|period| checkpoints(&period).level).unwrap();
        assert_eq!(level("1m\n"), Level::Ok);
        assert_eq!(level("\"1m\"\n"), Level::Ok);
        assert_eq!(level("\n"), Level::Warning);
        assert_eq!(setting("k", said("", false)).unwrap_err().what, "flux config get k: no way");
    }

    #[test]
    fn the_imp_has_to_be_setuid_root() {
        for (path, mode, level) in [
            ("/imp", Ok((0, 0o104_755)), Level::Ok),
            ("/imp", Ok((0, 0o100_755)), Level::Wrong),
            ("/imp", Ok((1000, 0o104_755)), Level::Wrong),
            ("/imp", Err("No such file or directory".to_owned()), Level::Wrong),
            ("", Ok((0, 0o104_755)), Level::Warning),
        ] {
            let told = format!("{path} {mode:?}");
            assert_eq!(imp(path, |_| mode).level, level, "{told}");
        }
    }
}
