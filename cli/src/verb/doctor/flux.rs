//! Checks of the edge of Flux: its state, its permissions at the controller, and how much Flux forgets in a crash.

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
    findings.push(checkpoints(shell::ask("flux", &["config", "get", "--default=", "kvs.checkpoint-period"])));
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

/// Reports how much rank 0 forgets in a crash.
fn checkpoints(said: Result<shell::Said, String>) -> Finding {
    let said = match said {
        Ok(said) if said.ok => said.stdout,
        Ok(said) => {
            let why = said.stderr.lines().next().unwrap_or("no answer").to_owned();
            return Finding::skipped(ABOUT, format!("flux config get kvs.checkpoint-period: {why}"));
        }
        Err(why) => return Finding::skipped(ABOUT, why),
    };
    match said.trim().trim_matches('"') {
        "" => Finding::warning(
            ABOUT,
            "[kvs] checkpoint-period is not set: a crash of rank 0 forgets every job since Flux was last started",
            "[kvs] checkpoint-period = \"1m\" in Flux's configuration, and a restart of rank 0",
        ),
        period => Finding::ok(ABOUT, format!("a crash of rank 0 forgets at most {period} of jobs")),
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
        assert_eq!(checkpoints(said("1m\n", true)).level, Level::Ok);
        assert_eq!(checkpoints(said("\n", true)).level, Level::Warning);
        assert_eq!(checkpoints(said("", false)).what, "flux config get kvs.checkpoint-period: no way");
    }
}
