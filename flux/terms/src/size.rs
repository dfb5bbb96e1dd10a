//! The size of a job, as far as its jobspec says it (RFC 14, RFC 25).

use crate::json;

/// Maximum depth of a jobspec's resources; version 1 has node, slot and core.
const DEPTH: usize = 8;

/// Returns the greatest number of nodes that a job with this jobspec can get. `flux submit -N4` says it; of a job that
/// asks for slots without nodes (`-n8`), no slot is on two nodes, so it gets at most one node for each slot. `None`:
/// the jobspec's resources are malformed or nested too deeply, or have a number that is no whole number, such as a
/// range without an end.
pub(crate) fn most_nodes(jobspec: &str) -> Option<u64> {
    sum(json::member(jobspec, "resources")?, DEPTH)
}

fn sum(resources: &str, depth: usize) -> Option<u64> {
    let vertices = json::elements(resources)?;
    vertices.into_iter().try_fold(0_u64, |all, vertex| Some(all.saturating_add(of_vertex(vertex, depth)?)))
}

fn of_vertex(vertex: &str, depth: usize) -> Option<u64> {
    let kind = json::member(vertex, "type").and_then(json::text)?;
    let count = json::member(vertex, "count")?;
    // A range, such as {"min": 2, "max": 4, ...}.
    let count: u64 = json::member(count, "max").unwrap_or(count).parse().ok()?;
    let inside = match (kind, json::member(vertex, "with")) {
        ("node", _) | (_, None) => 1,
        (_, Some(with)) if has_node(with, depth.checked_sub(1)?) => sum(with, depth - 1)?,
        _ => 1,
    };
    Some(count.saturating_mul(inside))
}

fn has_node(resources: &str, depth: usize) -> bool {
    let is_node = |vertex: &&str| json::member(vertex, "type").and_then(json::text) == Some("node");
    let below = |vertex: &str| match (json::member(vertex, "with"), depth.checked_sub(1)) {
        (Some(with), Some(depth)) => has_node(with, depth),
        _ => false,
    };
    json::elements(resources).unwrap_or_default().iter().any(|vertex| is_node(vertex) || below(vertex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobspec_says_how_many_nodes_at_most() {
        let core = r#"[{"type":"core","count":2}]"#;
        let slot =
            |count: &str, with: &str| format!(r#"[{{"type":"slot","label":"task","count":{count},"with":{with}}}]"#);
        let node =
            |count: &str, with: &str| format!(r#"[{{"type":"node","count":{count},"exclusive":true,"with":{with}}}]"#);
        for (resources, expect) in [
            (node("4", &slot("1", core)), Some(4)),
            (slot("8", core), Some(8)),
            (slot("2", &node("3", core)), Some(6)),
            (node(r#"{"min":2,"max":5,"operator":"+","operand":1}"#, &slot("1", core)), Some(5)),
            (node(r#"{"min":2,"operator":"+","operand":1}"#, &slot("1", core)), None),
            (node(r#""2-4""#, &slot("1", core)), None),
            ("[]".to_owned(), Some(0)),
            ("7".to_owned(), None),
            (r#"[{"type":"node"}]"#.to_owned(), None),
        ] {
            assert_eq!(most_nodes(&format!(r#"{{"resources":{resources},"version":1}}"#)), expect, "{resources}");
        }
        assert_eq!(most_nodes("{}"), None);
        let deep = (0..100).fold(core.to_owned(), |with, _| slot("1", &with));
        assert_eq!(most_nodes(&format!(r#"{{"resources":{deep}}}"#)), Some(1));
    }
}
