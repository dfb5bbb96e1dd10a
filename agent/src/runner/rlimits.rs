//! Resource limits of the scripts. A unit has 1024 descriptors and 8 MB of locked memory, which breaks RDMA and file
//! system tools. The runner raises its own limits once, and its scripts inherit them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Removes the limits of locked memory and stack, and allows `nofile` descriptors. Without the permission (a container
/// without CAP_SYS_RESOURCE), raises the limits as far as possible and returns a warning for each.
pub(crate) fn raise(nofile: u64) -> Vec<String> {
    let wishes = [
        (Resource::Memlock, "memlock", None),
        (Resource::Stack, "stack", None),
        (Resource::Nofile, "nofile", Some(nofile)),
    ];
    wishes.into_iter().filter_map(|(resource, name, wish)| set(resource, name, wish)).collect()
}

fn set(resource: Resource, name: &str, wish: Option<u64>) -> Option<String> {
    let both = |limit| Rlimit { current: limit, maximum: limit };
    let Err(error) = setrlimit(resource, both(wish)) else {
        return None;
    };
    let hard = getrlimit(resource).maximum;
    let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    // A process may always raise the soft limit to the hard limit.
    let kept = setrlimit(resource, both(hard)).map_or("is as it was", |()| "is as high as permitted");
    Some(format!("limit {name}: {} was asked for: {error}; it {kept}, {}", text(wish), text(hard)))
}
