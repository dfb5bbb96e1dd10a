//! Ids, epochs and commits on the wire.

use perilog_core::{
    ActionId, ActionName, Attempt as CoreAttempt, ClusterId, Commit as CoreCommit, Epoch as CoreEpoch, JobId,
    Mark as CoreMark, Rank, TaskId,
};

use crate::error::{At, Fault, need};

/// The 16 bytes of a UUID.
pub(crate) type Uuid = Vec<u8>;

fn uuid(bytes: &[u8]) -> Result<uuid::Uuid, Fault> {
    uuid::Uuid::from_slice(bytes).map_err(|_| Fault::bad(format!("{} bytes, a UUID has 16", bytes.len())))
}

pub(crate) fn cluster(bytes: &[u8]) -> Result<ClusterId, Fault> {
    uuid(bytes).map(ClusterId)
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Task {
    #[prost(bytes = "vec", tag = "1")]
    pub action: Uuid,
    #[prost(uint32, tag = "2")]
    pub rank: u32,
}

impl Task {
    pub(crate) fn of(task: TaskId) -> Self {
        Self { action: task.action.0.as_bytes().to_vec(), rank: task.rank.0 }
    }

    pub(crate) fn value(&self) -> Result<TaskId, Fault> {
        Ok(TaskId { action: ActionId(uuid(&self.action).at("action")?), rank: Rank(self.rank) })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attempt {
    #[prost(uint64, tag = "1")]
    pub whole: u64,
    /// The fraction of the attempt's number, in billionths.
    #[prost(uint32, tag = "2")]
    pub nano: u32,
}

/// The job, attempt and action name from which, with the cluster, an [`ActionId`] is derived.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Key {
    #[prost(string, tag = "1")]
    pub job: String,
    #[prost(message, optional, tag = "2")]
    pub attempt: Option<Attempt>,
    #[prost(string, tag = "3")]
    pub action: String,
}

impl Key {
    pub(crate) fn of(job: &JobId, attempt: CoreAttempt, action: &ActionName) -> Self {
        Self { job: job.to_string(), attempt: Some(Attempt::of(attempt)), action: action.to_string() }
    }

    pub(crate) fn value(self) -> Result<(JobId, CoreAttempt, ActionName), Fault> {
        Ok((
            JobId::new(&self.job).at("job")?,
            need(self.attempt).and_then(Attempt::value).at("attempt")?,
            ActionName::new(&self.action).at("action")?,
        ))
    }
}

impl Attempt {
    pub(crate) fn of(attempt: CoreAttempt) -> Self {
        let (whole, nano) = attempt.parts();
        Self { whole, nano }
    }

    pub(crate) fn value(self) -> Result<CoreAttempt, Fault> {
        CoreAttempt::from_parts(self.whole, self.nano).ok_or_else(|| Fault::bad(format!("{} billionths", self.nano)))
    }
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Epoch {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(fixed64, tag = "2")]
    pub nonce: u64,
}

impl Epoch {
    pub(crate) fn of(epoch: CoreEpoch) -> Self {
        Self { number: epoch.number, nonce: epoch.nonce }
    }

    pub(crate) fn value(self) -> CoreEpoch {
        CoreEpoch { number: self.number, nonce: self.nonce }
    }
}

/// A commit of the controller's store.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Commit {
    #[prost(message, optional, tag = "1")]
    pub epoch: Option<Epoch>,
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

impl Commit {
    pub(crate) fn of(commit: CoreCommit) -> Self {
        Self { epoch: Some(Epoch::of(commit.epoch)), number: commit.number }
    }

    pub(crate) fn value(self) -> Result<CoreCommit, Fault> {
        Ok(CoreCommit { epoch: need(self.epoch).at("epoch")?.value(), number: self.number })
    }
}

/// A commit, with the cluster whose controller made the commit.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mark {
    #[prost(bytes = "vec", tag = "1")]
    pub cluster: Uuid,
    #[prost(message, optional, tag = "2")]
    pub commit: Option<Commit>,
}

impl Mark {
    pub(crate) fn of(mark: CoreMark) -> Self {
        Self { cluster: mark.cluster.0.as_bytes().to_vec(), commit: Some(Commit::of(mark.commit)) }
    }

    pub(crate) fn value(self) -> Result<CoreMark, Fault> {
        Ok(CoreMark {
            cluster: cluster(&self.cluster).at("cluster")?,
            commit: need(self.commit).and_then(Commit::value).at("commit")?,
        })
    }
}
