//! Growth of the figures with the number of agents: the exponent `b` of `figure = a * agents^b`, between the smallest
//! and the largest number of a run. 1 is linear.

use perilog_bench::report::Table;
use perilog_bench::stats::figure;
use serde_json::{Map, Value};

/// Target (docs/performance.md): maximum exponent.
const MOST: f64 = 1.05;

/// Figures for one number of agents, each for all agents together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) agents: usize,
    pub(super) round_ms: f64,
    pub(super) bare_ms: [f64; 2],
    pub(super) cpu_us: f64,
    pub(super) bare_cpu_us: f64,
    pub(super) memory_kib: f64,
    pub(super) reconnect_cpu_us: f64,
}

/// Adds a line for each figure that has a target, and one for the bare wire; returns the exponents as JSON, empty with
/// fewer than two numbers of agents.
pub(super) fn report(sizes: &[Size], table: &mut Table) -> Value {
    let mut all = Map::new();
    let least = sizes.iter().min_by_key(|size| size.agents);
    let most = sizes.iter().max_by_key(|size| size.agents);
    let (Some(least), Some(most)) = (least, most) else { return Value::Object(all) };
    if least.agents == most.agents {
        return Value::Object(all);
    }
    let mut of = |name: &str, value: &dyn Fn(&Size) -> f64| {
        let exponent = (value(most) / value(least)).ln() / (most.agents as f64 / least.agents as f64).ln();
        all.insert(name.to_owned(), exponent.into());
        exponent
    };
    let bare = [of("bare_ms", &|size| size.bare_ms[0]), of("bare_again_ms", &|size| size.bare_ms[1])];
    let bare_cpu = of("bare_cpu", &|size| size.bare_cpu_us);
    let beside = format!(" (bare wire {}, again {})", figure(bare[0]), figure(bare[1]));
    let targets = [
        ("a round", of("round_ms", &|size| size.round_ms), beside),
        ("CPU of a round", of("cpu", &|size| size.cpu_us), format!(" (bare wire {})", figure(bare_cpu))),
        ("memory of connected agents", of("memory", &|size| size.memory_kib), String::new()),
        ("CPU of a reconnect", of("reconnect_cpu", &|size| size.reconnect_cpu_us), String::new()),
    ];
    for (what, exponent, beside) in targets {
        let what = format!("{} to {} agents, exponent of {what}", least.agents, most.agents);
        table.target(&what, &format!("{}{beside}", figure(exponent)), "most 1.05", exponent <= MOST);
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(agents: usize, factor: f64) -> Size {
        let linear = agents as f64 * factor;
        Size {
            agents,
            round_ms: linear * linear,
            bare_ms: [linear, linear.sqrt()],
            cpu_us: linear,
            bare_cpu_us: linear,
            memory_kib: 7.0,
            reconnect_cpu_us: linear,
        }
    }

    #[test]
    fn exponents_are_of_the_smallest_and_the_largest_number() {
        let mut table = Table::new(&[""]);
        assert_eq!(report(&[size(10, 2.0)], &mut table), serde_json::json!({}));
        let all = report(&[size(1_000, 3.0), size(20_000, 3.0), size(10_000, 99.0)], &mut table);
        let of = |name: &str| (all[name].as_f64().unwrap() * 100.0).round();
        assert_eq!(["round_ms", "bare_ms", "bare_again_ms", "cpu", "memory"].map(of), [200.0, 100.0, 50.0, 100.0, 0.0]);
        let text = table.text();
        assert!(text.contains("OVER: 1000 to 20000 agents, exponent of a round 2.00"), "{text}");
        assert!(text.contains("met : 1000 to 20000 agents, exponent of CPU of a round 1.00"), "{text}");
    }
}
