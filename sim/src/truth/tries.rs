//! Checks invariant 1 (a script starts at most once) within one run, which is a claimed task. Scripts begin in order,
//! each once. A script begins again only after a failed try, and at most as often as the node's configuration allows.

use perilog_core::ExitStatus;

use super::Truth;
use crate::world::site;

impl Truth {
    /// Checks invariant 1 as the script with index `script` of run `index` begins. Scripts begin one at a time, in
    /// order and each once; again only after a failed try, and only as often as configured.
    pub(super) fn check_start_of_script(&mut self, index: usize, script: usize) {
        let Some(run) = self.runs.get_mut(index) else { return };
        let begun = run.starts.len();
        let may = site::tries(&run.step.1);
        let failed_try = std::mem::take(&mut run.failed_try);
        let wrong = if run.alive {
            Some("while one of it lives".to_owned())
        } else if script == begun {
            run.starts.push(1);
            (run.ends.len() != begun).then(|| format!("and of {begun} before it {} have ended", run.ends.len()))
        } else if let Some(starts) = run.starts.last_mut().filter(|_| script + 1 == begun) {
            *starts += 1;
            match (failed_try, *starts) {
                (false, _) => Some("once more, and did not fail".to_owned()),
                (true, times) if times > may => Some(format!("for the {times}th time, and {may} are configured")),
                _ => None,
            }
        } else {
            Some(format!("out of order: {begun} have begun"))
        };
        if let Some(how) = wrong {
            let stem = run.stem.clone();
            self.broken(|| format!("1 claimed once: script {script} of {stem} begins {how}"));
        }
    }

    /// Checks a script of run `index` after its last try: if the script failed, the runner has used all tries, unless
    /// the task was cancelled or overdue.
    pub(super) fn check_tries(&mut self, index: usize, status: ExitStatus) {
        let Some(run) = self.runs.get(index) else { return };
        let (may, times) = (site::tries(&run.step.1), run.starts.last().copied().unwrap_or_default());
        if !status.is_success() && times < may && !run.cancelled && !run.overdue {
            let stem = run.stem.clone();
            self.broken(|| {
                format!("1 claimed once: a script of {stem} failed {times} times, and {may} are configured")
            });
        }
    }
}
