//! Resource limits of the scripts. A unit has 1024 descriptors and 8 MB of locked memory, which breaks RDMA and file
//! system tools. The runner raises its own limits once, and its scripts inherit them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Removes the limits of locked memory and stack, and allows `nofile` descriptors. Without the permission (a container
/// without CAP_SYS_RESOURCE), raises the limits as far as possible and returns one warning with all of them.
pub(crate) fn raise(nofile: u64) -> Option<String> {
    let wishes = [
        (Resource::Memlock, "memlock", None),
        (Resource::Stack, "stack", None),
        (Resource::Nofile, "nofile", Some(nofile)),
    ];
    let low: Vec<String> = wishes.into_iter().filter_map(|(resource, name, wish)| set(resource, name, wish)).collect();
    (!low.is_empty()).then(|| format!("these resource limits are lower than requested: {}", low.join(", ")))
}

/// Sets a limit, or raises it as far as possible. Returns a text about a limit that is lower than the wish.
fn set(resource: Resource, name: &str, wish: Option<u64>) -> Option<String> {
    let both = |limit| Rlimit { current: limit, maximum: limit };
    let error = setrlimit(resource, both(wish)).err()?;
    let hard = getrlimit(resource).maximum;
    // A process may always raise the soft limit to the hard limit.
    let _ = setrlimit(resource, both(hard));
    let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    Some(format!("{name} {} instead of {} ({error})", text(getrlimit(resource).current), text(wish)))
}
