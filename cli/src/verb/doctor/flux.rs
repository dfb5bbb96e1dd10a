//! Checks of Flux: the edge's state and its permissions at the controller, the plugin now and after a restart of rank
//! 0, how much Flux forgets in a crash, and whether Flux runs jobs of its users, also on each node.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;
use toml::Table;

use super::{Finding, config, shell};

const ABOUT: &str = "flux";
const UNIT: &str = "perilog-flux.service";
/// The user that owns the system instance of Flux. This user may list the plugins and run the IMP; other users normally
/// may not.
const OWNER: &str = "flux";
const PLUGIN: &str = "perilog-hold.so";
const LOAD: &str = "put plugins = [ { load = \"/usr/lib/perilog/perilog-hold.so\" } ] under [job-manager]; list all \
                    plugins in one file, because Flux keeps only the last list";

/// Checks Flux on the host of its rank 0. Returns no findings where `perilog-flux` is not in use.
pub(super) fn inspect(controller: Option<&Table>) -> Vec<Finding> {
    let Some(unit) = used(UNIT) else { return Vec::new() };
    let mut findings = vec![edge(&unit.active, &unit.status)];
    findings.extend(controller.map(settings).unwrap_or_default());
    findings.push(
        of_flux("jobtap list", as_owner(&["flux", "jobtap", "list"])).map_or_else(|none| none, |list| plugin(&list)),
    );
    // A restart reads the files, which may be newer than the configuration that the broker has.
    let path = of_flux("getattr config.path", as_owner(&["flux", "getattr", "config.path"]));
    let path = path.ok().filter(|path| !path.is_empty()).unwrap_or_else(|| "system".to_owned());
    let file = ["config", "get", "--config-path", &path, "--default=[]", "job-manager.plugins"];
    let output = of_flux("config get job-manager.plugins", shell::ask("flux", &file));
    findings
        .push(output.map_or_else(|none| none, |plugins| configured(&plugins, &path, |file| Path::new(file).exists())));
    findings.push(set("kvs.checkpoint-period").map_or_else(|none| none, |period| checkpoints(&period)));
    findings.push(starts_jobs());
    findings
}

/// Checks Flux on a node. Returns no findings where no broker of Flux is in use.
pub(super) fn on_a_node() -> Vec<Finding> {
    if used("flux.service").is_none() {
        return Vec::new();
    }
    let path = ["config", "get", "--config-path", "imp", "--default=", "run.housekeeping.path"];
    let path = of_flux("config get run.housekeeping.path", shell::ask("flux", &path));
    let is_program = |path: &str| std::fs::metadata(path).is_ok_and(|of| of.is_file() && of.mode() & 0o111 != 0);
    let runs =
        set("job-manager.housekeeping.command").and_then(|command| Ok(housekeeping(&command, &path?, is_program)));
    [Some(starts_jobs()), runs.unwrap_or_else(Some)].into_iter().flatten().collect()
}

/// Checks that the IMP finds the program of Flux's housekeeping: if the program cannot run, Flux takes a node back at
/// once. `command`: `[job-manager.housekeeping] command`; `path`: `[run.housekeeping] path` of the IMP. Both are empty
/// if not set.
fn housekeeping(command: &str, path: &str, is_program: impl Fn(&str) -> bool) -> Option<Finding> {
    const FREE: &str = "Flux gives this node to the next job without housekeeping, even while an epilog still runs";
    match path {
        _ if !command.contains("flux-imp") => None,
        "" => {
            let what = format!("the IMP's configuration has no [run.housekeeping]: {FREE}");
            let todo = "add it to a file in /etc/flux/imp/conf.d, as in /usr/share/doc/perilog/flux.md";
            Some(Finding::wrong(ABOUT, what, todo))
        }
        path if is_program(path) => Some(Finding::ok(ABOUT, format!("the IMP finds {path} for Flux's housekeeping"))),
        path => {
            let what = format!(
                "the IMP's configuration names {path} in [run.housekeeping], but no such program exists: {FREE}"
            );
            Some(Finding::wrong(
                ABOUT,
                what,
                "install the package perilog, which has this program, or correct the path in /etc/flux/imp/conf.d",
            ))
        }
    }
}

struct Unit {
    active: String,
    status: String,
}

/// Returns the state of a unit; `None` where the unit is not installed, or is neither enabled nor active.
fn used(unit: &str) -> Option<Unit> {
    let asked = ["show", unit, "--property", "LoadState,UnitFileState,ActiveState,StatusText"];
    let shown = shell::ask("systemctl", &asked).ok()?;
    let get = |name: &str| {
        let value = shown.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().to_owned()
    };
    let is_used = get("UnitFileState") == "enabled" || get("ActiveState") == "active";
    (get("LoadState") == "loaded" && is_used).then(|| Unit { active: get("ActiveState"), status: get("StatusText") })
}

fn as_owner(command: &[&str]) -> Result<shell::ShellOutput, String> {
    shell::ask("runuser", &[&["-u", OWNER, "--"], command].concat())
}

/// Returns the value of a key in the broker's configuration; empty if the key is not set. `Err`: the finding that the
/// check was skipped, and why.
fn set(key: &str) -> Result<String, Finding> {
    of_flux(&format!("config get {key}"), shell::ask("flux", &["config", "get", "--default=", key]))
}

fn starts_jobs() -> Finding {
    let mode = |path: &str| std::fs::metadata(path).map(|file| (file.uid(), file.mode())).map_err(|e| e.to_string());
    let runs = |path: &str| of_flux("imp", as_owner(&[path, "version"])).map(drop).map_err(|none| none.what);
    set("exec.imp").map_or_else(|none| none, |path| imp(&path, mode, runs))
}

/// Checks that rank 0 has the plugin loaded. `list`: the output of `flux jobtap list`.
fn plugin(list: &str) -> Finding {
    match list.lines().any(|line| line.trim().ends_with(PLUGIN)) {
        true => Finding::ok(ABOUT, format!("{PLUGIN} is loaded")),
        false => {
            let what = format!("{PLUGIN} is not loaded: jobs of Flux run without prolog and epilog");
            Finding::wrong(ABOUT, what, "flux jobtap load /usr/lib/perilog/perilog-hold.so")
        }
    }
}

/// Checks that rank 0 loads the plugin at its next start. `path`: where Flux's configuration is. `plugins`: its
/// `[job-manager] plugins`, as JSON. `exists` returns `true` for the path of an existing file.
fn configured(plugins: &str, path: &str, exists: impl Fn(&str) -> bool) -> Finding {
    let plugins: Value = serde_json::from_str(plugins).unwrap_or_default();
    let all = plugins.as_array().into_iter().flatten();
    match all.filter_map(|plugin| plugin["load"].as_str()).find(|load| load.ends_with(PLUGIN)) {
        None => {
            let what = format!(
                "Flux's configuration ({path}) does not load {PLUGIN}: after a restart of rank 0 jobs run without \
                 prolog and epilog"
            );
            Finding::wrong(ABOUT, what, LOAD)
        }
        Some(load) if load.starts_with('/') && !exists(load) => {
            let what = format!(
                "Flux's configuration ({path}) loads {load}, which does not exist: the broker of rank 0 will fail at \
                 its next start"
            );
            Finding::wrong(ABOUT, what, LOAD)
        }
        Some(_) => Finding::ok(ABOUT, format!("the broker of rank 0 loads {PLUGIN} when it starts again")),
    }
}

/// Checks that `perilog-flux` runs, and reports why it waits. `state` and `status`: the state and status text of its
/// unit.
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

/// Checks in the controller's configuration that the edge may connect, and that failed nodes are drained in Flux.
fn settings(controller: &Table) -> Vec<Finding> {
    const EDGE_TOML: &str = "set group = \"flux\" and drains = true in [edge] of /etc/perilog/controller.d/edge.toml; \
                             systemctl restart perilog-controller";
    let has = |path: &[&str]| config::text(controller, path).is_some();
    let mut findings = Vec::new();
    if !has(&["edge", "group"]) && !has(&["api", "group"]) {
        let what = "[edge] group is not set: the controller refuses perilog-flux";
        findings.push(Finding::wrong(ABOUT, what, EDGE_TOML));
    }
    let edge = controller.get("edge").and_then(|edge| edge.get("drains")).and_then(toml::Value::as_bool);
    let has_command = controller.get("drain").and_then(|drain| drain.get("command")).is_some();
    if edge != Some(true) && !has_command {
        let what =
            "[edge] drains is not true, and there is no [drain] command: Flux continues to use nodes that failed";
        findings.push(Finding::warning(ABOUT, what, EDGE_TOML));
    }
    findings
}

/// Returns what a command of Flux printed. `asked`: the command's arguments, for messages. `output`: the end of the
/// command. `Err`: the command failed; the finding says that the check was skipped, and why.
fn of_flux(asked: &str, output: Result<shell::ShellOutput, String>) -> Result<String, Finding> {
    match output {
        Ok(output) if output.ok => Ok(output.stdout.trim().trim_matches('"').to_owned()),
        Ok(output) => {
            let why = output.stderr.lines().next().unwrap_or("no answer").to_owned();
            Err(Finding::skipped(ABOUT, format!("flux {asked}: {why}")))
        }
        Err(why) => Err(Finding::skipped(ABOUT, why)),
    }
}

/// Reports how much Flux forgets when its rank 0 crashes. `period`: `[kvs] checkpoint-period`, empty if not set.
fn checkpoints(period: &str) -> Finding {
    match period {
        "" => Finding::warning(
            ABOUT,
            "[kvs] checkpoint-period is not set: after a crash of rank 0, Flux forgets every job since its last start",
            "set [kvs] checkpoint-period = \"1m\" in Flux's configuration, and restart rank 0",
        ),
        period => {
            Finding::ok(ABOUT, format!("after a crash of rank 0, Flux forgets at most the last {period} of jobs"))
        }
    }
}

/// Checks that Flux starts jobs as their users: through flux-imp, which belongs to root and has the setuid bit. `path`:
/// the path of flux-imp, empty if not set. `mode`: returns owner and mode of a file. `runs`: checks that the owner of
/// the instance can run the file.
fn imp(
    path: &str,
    mode: impl FnOnce(&str) -> Result<(u32, u32), String>,
    runs: impl FnOnce(&str) -> Result<(), String>,
) -> Finding {
    const SETUID: u32 = 0o4000;
    if path.is_empty() {
        return Finding::warning(
            ABOUT,
            "[exec] imp is not set: Flux runs only jobs of the user flux",
            "set [exec] imp = \"/usr/libexec/flux/flux-imp\" in Flux's configuration, and restart Flux",
        );
    }
    match mode(path) {
        Ok((0, mode)) if mode & SETUID != 0 => match runs(path) {
            Ok(()) => Finding::ok(ABOUT, format!("{path} starts jobs as their users")),
            Err(why) => {
                let what =
                    format!("{path} does not run as user {OWNER}, so every job of a user fails at its start: {why}");
                Finding::wrong(
                    ABOUT,
                    what,
                    format!(
                        "type runuser -u {OWNER} -- {path} version to see the error; the IMP's configuration is in \
                         /etc/flux/imp/conf.d"
                    ),
                )
            }
        },
        Ok(_) => {
            let what = format!("{path} is not setuid root, so every job of a user fails at its start");
            Finding::wrong(ABOUT, what, format!("chown root {path}; chmod u+s {path}"))
        }
        Err(why) => Finding::wrong(ABOUT, format!("[exec] imp: {path}: {why}"), "install flux-security"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_edge_says_what_it_waits_for() {
        for (state, status, level) in [
            ("active", "jobs of Flux with resources: 3, held: 1", Level::Ok),
            ("active", "waits: the plugin is not loaded", Level::Warning),
            ("active", "waits for perilog's controller; jobs held: 1", Level::Warning),
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
    fn a_flux_that_forgets_is_reported() {
        let output =
            |text: &str, ok| Ok(shell::ShellOutput { ok, stdout: text.to_owned(), stderr: "no way\n".to_owned() });
        let level = |text: &str| of_flux("k", output(text, true)).map(|period| checkpoints(&period).level).unwrap();
        assert_eq!(level("1m\n"), Level::Ok);
        assert_eq!(level("\"1m\"\n"), Level::Ok);
        assert_eq!(level("\n"), Level::Warning);
        assert_eq!(of_flux("config get k", output("", false)).unwrap_err().what, "flux config get k: no way");
    }

    #[test]
    fn the_plugin_is_searched_now_and_at_the_next_start() {
        assert_eq!(plugin(".priority-default\n/usr/lib/perilog/perilog-hold.so\n").level, Level::Ok);
        assert_eq!(plugin(".priority-default\nperilog.so\n").level, Level::Wrong);
        let level = |plugins: &str| configured(plugins, "/etc/flux", |file| file == "/usr/lib/perilog/perilog-hold.so");
        for (plugins, expect, part) in [
            (r#"[{"load": "mf.so"}, {"load": "/usr/lib/perilog/perilog-hold.so"}]"#, Level::Ok, "starts again"),
            (
                r#"[{"load": "/usr/lib/perilog-hold.so"}]"#,
                Level::Wrong,
                "loads /usr/lib/perilog-hold.so, which does not exist",
            ),
            (r#"[{"load": "mf.so"}]"#, Level::Wrong, "does not load"),
            ("[]", Level::Wrong, "does not load"),
        ] {
            let found = level(plugins);
            assert!(found.level == expect && found.what.contains(part), "{plugins}: {found:?}");
        }
    }

    #[test]
    fn the_imp_has_to_find_what_housekeeping_runs() {
        let imp = r#"["/usr/libexec/flux/flux-imp","run","housekeeping"]"#;
        for (command, path, expect) in [
            ("", "", None),
            (r#"["/usr/bin/true"]"#, "", None),
            (imp, "/wait", Some(Level::Ok)),
            (imp, "/gone", Some(Level::Wrong)),
            (imp, "", Some(Level::Wrong)),
        ] {
            let found = housekeeping(command, path, |path| path == "/wait");
            assert_eq!(found.map(|found| found.level), expect, "{command} {path}");
        }
    }

    #[test]
    fn the_imp_has_to_be_setuid_root_and_to_run() {
        let none = || Err("No such file or directory".to_owned());
        for (path, mode, runs, level) in [
            ("/imp", Ok((0, 0o104_755)), Ok(()), Level::Ok),
            ("/imp", Ok((0, 0o104_755)), Err("no configuration".to_owned()), Level::Wrong),
            ("/imp", Ok((0, 0o100_755)), Ok(()), Level::Wrong),
            ("/imp", Ok((1000, 0o104_755)), Ok(()), Level::Wrong),
            ("/imp", none(), Ok(()), Level::Wrong),
            ("", Ok((0, 0o104_755)), Ok(()), Level::Warning),
        ] {
            let reported = format!("{path} {mode:?} {runs:?}");
            assert_eq!(imp(path, |_| mode, |_| runs).level, level, "{reported}");
        }
    }
}
