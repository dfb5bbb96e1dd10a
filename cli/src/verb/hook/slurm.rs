//! Slurm's variables for its prologs and epilogs (its Prolog and Epilog Guide; tried with 22.05).
//!
//! * SLURM_JOB_ID, SLURM_JOB_UID: a task of a job array and a component of a heterogeneous job each have an id of their
//!   own.
//! * SLURM_JOB_RESTART_COUNT: for a prolog, the number of its attempt. A slurmctld that lost its newest state gives a
//!   number twice; the host then counts on. An epilog of a requeued job already gets the number of the next attempt, so
//!   two epilogs have the same number. So an epilog belongs to the newest attempt that the host, or the controller,
//!   knows.
//! * SLURM_NODELIST on a node, and SLURM_JOB_NODELIST beside slurmctld and on nodes of newer releases.
//! * SLURM_JOB_START_TIME, since 24.11: distinguishes two jobs with the same number, after Slurm lost count.
//! * SLURMD_NODENAME: this node. The node's place in the list is the rank, as SLURM_NODEID is within the job. The name
//!   may differ from the agent's: one host may run several slurmds.

use perilog_core::{ActionName, HostList};
use serde_json::json;

use super::environment::Environment;
use super::job;
use super::node::{self, Turn};
use super::{OfJob, named};
use crate::fault::Fault;
use crate::session::TYPED;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Prolog,
    Epilog,
}

const RESTARTS: &str = "SLURM_JOB_RESTART_COUNT";
/// Variable with the job's start time; Slurm sets it since 24.11.
const BEGAN: &str = "SLURM_JOB_START_TIME";
const NODES: [&str; 2] = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];

pub(super) fn node(env: &Environment, side: Side, action: Option<ActionName>) -> Result<node::Call, Fault> {
    let (name, turn, attempt) = match side {
        Side::Prolog => ("prolog", Turn::Begins, env.read(RESTARTS)?),
        Side::Epilog => ("epilog", Turn::Ends, None),
    };
    Ok(node::Call {
        job: env.need("SLURM_JOB_ID", "slurmd")?,
        attempt,
        answered: false,
        turn,
        action: action.map_or_else(|| named(name), Ok)?,
        rank: rank(env)?,
        userid: env.read("SLURM_JOB_UID")?,
        env: env.offer(is_slurms),
        // An epilog belongs to the newest known attempt, at any start time that Slurm gives.
        instance: (side == Side::Prolog).then(|| env.get(BEGAN)).flatten().map(str::to_owned),
        note: None,
    })
}

pub(super) fn job(env: &Environment, side: Side, of: OfJob) -> Result<job::Call, Fault> {
    let nodes: HostList = env.need("SLURM_JOB_NODELIST", "slurmctld")?;
    Ok(job::Call {
        job: env.need("SLURM_JOB_ID", "slurmctld")?,
        attempt: if side == Side::Prolog { env.read(RESTARTS)? } else { None },
        place: json!({ "nodes": nodes }),
        ranks: None,
        userid: env.read("SLURM_JOB_UID")?,
        env: env.offer(is_slurms),
        // slurmctld kills its hooks with SIGKILL. A SIGTERM comes from systemd, for all of slurmctld.service, when
        // slurmctld stops or has died.
        asking: TYPED,
        of,
    })
}

/// Returns `true` for Slurm's own variables, and for variables that a job has set for SPANK. All others belong to the
/// daemon.
pub(super) fn is_slurms(name: &str) -> bool {
    ["SLURM_", "SLURMD_", "SPANK_"].iter().any(|own| name.starts_with(own))
}

/// Returns this node's rank in the job: its place in Slurm's list of the job's nodes. Returns 0 if Slurm gives no list
/// or no node name. Fails if the node is not in the list.
fn rank(env: &Environment) -> Result<u32, Fault> {
    let list = NODES.into_iter().find(|name| env.get(name).is_some());
    let (Some(node), Some(list)) = (env.get("SLURMD_NODENAME"), list) else { return Ok(0) };
    let nodes = env.read::<HostList>(list)?.unwrap_or_default();
    let place = nodes.position(node).and_then(|place| u32::try_from(place).ok());
    place.ok_or_else(|| Fault::Usage(format!("SLURMD_NODENAME={node:?} is none of {list}={nodes}")))
}

#[cfg(test)]
mod tests {
    use perilog_core::Attempt;

    use super::*;

    #[test]
    fn a_task_is_the_place_of_its_node_in_the_job() {
        let job = [("SLURM_JOB_ID", "5"), ("SLURM_JOB_UID", "1000"), ("SLURMD_NODENAME", "n3")];
        let call = |more: &[(&str, &str)], side| node(&Environment::of(&[&job, more].concat()), side, None);
        let prolog = call(&[("SLURM_JOB_NODELIST", "n[1-4]"), ("SLURM_JOB_RESTART_COUNT", "2")], Side::Prolog).unwrap();
        assert_eq!((prolog.job.as_str(), prolog.action.as_str(), prolog.rank), ("5", "prolog", 2));
        assert_eq!(
            (prolog.attempt, prolog.userid, prolog.turn),
            (Some(Attempt::from_number(2)), Some(1000), Turn::Begins)
        );
        assert_eq!(prolog.env.len(), 5);
        let old = [("SLURM_NODELIST", "n[1-4]"), ("SLURM_JOB_RESTART_COUNT", "3")];
        let epilog = call(&old, Side::Epilog).unwrap();
        assert_eq!((epilog.action.as_str(), epilog.rank, epilog.turn), ("epilog", 2, Turn::Ends));
        assert_eq!(epilog.attempt, None, "an epilog of a requeued job gets the next attempt's number");
        assert_eq!(call(&[], Side::Epilog).unwrap().rank, 0);
        let beside =
            [("SLURM_JOB_START_TIME", "1700000000"), ("LD_PRELOAD", "/x.so"), ("PATH", "/bin"), ("SPANK_X", "1")];
        let reported = call(&beside, Side::Prolog).unwrap();
        assert_eq!(reported.instance.as_deref(), Some("1700000000"));
        let names: Vec<&str> = reported.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["SLURMD_NODENAME", "SLURM_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_JOB_UID", "SPANK_X"]);
        assert_eq!(call(&beside, Side::Epilog).unwrap().instance, None);
        for (more, part) in [
            (("SLURM_JOB_NODELIST", "m[1-4]"), "SLURMD_NODENAME=\"n3\" is none of SLURM_JOB_NODELIST=m[1-4]"),
            (("SLURM_JOB_NODELIST", "n[1-"), "SLURM_JOB_NODELIST=\"n[1-\": "),
            (("SLURM_JOB_RESTART_COUNT", "x"), "SLURM_JOB_RESTART_COUNT=\"x\": "),
            (("SLURM_JOB_UID", "alice"), "SLURM_JOB_UID=\"alice\": "),
        ] {
            let error = call(&[more], Side::Prolog).err().unwrap().to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }
}
