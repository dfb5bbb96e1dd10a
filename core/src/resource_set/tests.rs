//! Tests with the examples of RFC 20 and of Flux's own library, and of cutting and uniting fragments.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn r(ranks: &[(&str, &str)], nodelist: &str) -> ResourceSet {
    let lite: Vec<Value> =
        ranks.iter().map(|(rank, core)| json!({"rank": rank, "children": {"core": core, "gpu": "0"}})).collect();
    let text = json!({"version": 1, "execution": {"R_lite": lite, "nodelist": [nodelist]}}).to_string();
    ResourceSet::from_json(&text).unwrap()
}

fn set(text: &str) -> IdSet {
    text.parse().unwrap()
}

fn lite(r: &ResourceSet) -> String {
    serde_json::from_str::<Value>(&r.to_json()).unwrap()["execution"]["R_lite"].to_string()
}

/// Found by fuzzing: a key that is no key of R was quoted with its line breaks.
#[test]
fn an_error_is_one_line() {
    for text in [
        r#"{"version":1,"a\nb":["#,
        r#"{"version":1,"execution":{"R_lite":[],"nodelist":[],"properties":{"a\nb":"x"}}}"#,
    ] {
        let error = ResourceSet::from_json(text).unwrap_err().to_string();
        assert!(!error.contains('\n') && error.contains("a\u{fffd}b"), "{error:?}");
    }
}

#[test]
fn the_example_of_the_rfc_reads_back() {
    let text = concat!(
        r#"{"version":1,"execution":{"R_lite":[{"rank":"19-22","children":{"core":"7-10,7-8","gpu":"0"}}],"#,
        r#""starttime":0.0,"expiration":0.0,"nodelist":["node[186-189]"]}}"#,
    );
    assert_eq!(ResourceSet::from_json(text).unwrap_err().place, "execution.R_lite[0].children.core");
    let text = text.replace("7-10,7-8", "0-47");
    let r = ResourceSet::from_json(&text).unwrap();
    assert_eq!(r.to_json(), text);
    assert_eq!(r.ranks(), &set("19-22"));
    assert_eq!(r.hosts().get(3), Some("node189"));
    assert_eq!(r.children(20).unwrap()["core"], set("0-47"));
    assert_eq!(r.children(23), None);
}

#[test]
fn parts_of_r() {
    let whole = r(&[("0-5", "0-3")], "foo[0-5]");
    for (ranks, part, hosts, rest) in [
        ("1,3,5", "1,3,5", "foo[1,3,5]", "0,2,4"),
        ("5-9", "5", "foo5", "0-4"),
        ("9,20", "", "", "0-5"),
        ("", "", "", "0-5"),
        ("0-4294967295", "0-5", "foo[0-5]", ""),
    ] {
        let fragment = whole.fragment(&set(ranks));
        assert_eq!(fragment.ranks(), &set(part), "{ranks}");
        assert_eq!(fragment.hosts().to_string(), hosts, "{ranks}");
        let children = if part.is_empty() {
            "[]".to_owned()
        } else {
            format!(r#"[{{"children":{{"core":"0-3","gpu":"0"}},"rank":"{part}"}}]"#)
        };
        assert_eq!(lite(&fragment), children, "{ranks}");
        assert_eq!(whole.without(&set(ranks)).ranks(), &set(rest), "{ranks}");
    }
}

#[test]
fn ranks_with_the_same_children_share_an_entry() {
    let r = r(&[("3", "0-1"), ("0", "0-3"), ("2", "0-3"), ("1", "0-1")], "a,b,c,d");
    let both =
        r#"[{"children":{"core":"0-3","gpu":"0"},"rank":"0,2"},{"children":{"core":"0-1","gpu":"0"},"rank":"1,3"}]"#;
    assert_eq!(lite(&r), both);
}

#[test]
fn a_rank_named_twice_has_the_children_of_both() {
    let r = r(&[("0-2", "0-3"), ("1", "4-7"), ("[1-2]", "8")], "foo[0-2]");
    let cores: Vec<_> = (0..3).map(|rank| r.children(rank).unwrap()["core"].to_string()).collect();
    assert_eq!(cores, ["0-3", "0-8", "0-3,8"]);
}

#[test]
fn hosts_go_with_their_ranks_whatever_their_order() {
    let (one, zero) = (r(&[("1", "0")], "foo15"), r(&[("0", "0")], "foo16"));
    assert_eq!(one.union(&zero).unwrap().hosts().to_string(), "foo[16,15]");
    assert_eq!(
        zero.union(&r(&[("0", "0")], "x")).unwrap_err().to_string(),
        "R (RFC 20): execution.nodelist: rank 0 is on foo16 and on x"
    );
    let many = json!({"version": 1, "execution": {"R_lite": [{"rank": "[0-1023]", "children": {"core": "0"}}],
        "nodelist": ["a[0-511]", "b", "c[1-511]"]}});
    let many = ResourceSet::from_json(&many.to_string()).unwrap();
    assert_eq!(many.fragment(&set("511-513,1023")).hosts().to_string(), "a511,b,c[1,511]");
}

#[test]
fn what_is_of_the_whole_stays_with_the_whole() {
    let text = json!({"version": 1, "more": {}, "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}], "nodelist": ["n[0-3]"], "nslots": 8, "starttime": 1.5,
        "expiration": 1700000000, "properties": {"big": "1,3", "none": "", "x@core": "0"}},
        "scheduling": {"writer": "fluxion:0.40", "graph": [1]}});
    let whole = ResourceSet::from_json(&text.to_string()).unwrap();
    let back: Value = serde_json::from_str(&whole.to_json()).unwrap();
    assert_eq!(back["execution"]["nslots"], 8);
    assert_eq!(back["execution"]["starttime"], 1.5);
    assert_eq!(back["execution"]["expiration"], 1_700_000_000);
    assert_eq!(back["execution"]["properties"], json!({"big": "1,3", "x@core": "0"}));
    let part: Value = serde_json::from_str(&whole.fragment(&set("2-3")).to_json()).unwrap();
    assert_eq!(part["execution"]["nslots"], Value::Null);
    assert_eq!(part["execution"]["starttime"], 0.0);
    assert_eq!(part["execution"]["expiration"], 0.0);
    assert_eq!(part["execution"]["properties"], json!({"big": "3"}));
    assert_eq!(part["scheduling"], text["scheduling"]);
    let none: Value = serde_json::from_str(&whole.fragment(&set("9")).to_json()).unwrap();
    assert_eq!(none.get("scheduling"), None);
    assert_eq!(none["execution"]["R_lite"], json!([]));
}

#[test]
fn what_is_no_r_is_refused_with_its_place() {
    let good = json!({"version": 1,
                      "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0"}}], "nodelist": ["a,b"]}});
    let with = |path: &str, value: Value| {
        let mut r = good.clone();
        *r.pointer_mut(path.rsplit_once('/').unwrap().0)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .entry(path.rsplit_once('/').unwrap().1)
            .or_insert(Value::Null) = value;
        r.to_string()
    };
    #[rustfmt::skip]
    let table = [
        ("", "the text", "EOF"),
        ("[]", "the text", "expected the object of RFC 20"),
        ("{\"version\":1", "the text", "EOF"),
        (&with("/version", json!(2)), "version", "2: only version 1"),
        (&with("/version", json!(1.5)), "version", "1.5: only version 1"),
        (&with("/version", json!("1")), "version", "expected a JSON number"),
        (&json!({"execution": {}}).to_string(), "execution", "missing field `R_lite`"),
        (&json!({"version": 1}).to_string(), "execution", "missing"),
        (&with("/execution/nodelist", json!(["a,b,c"])), "execution.nodelist", "3 hosts for 2 ranks"),
        (&with("/execution/nodelist", json!([])), "execution.nodelist", "0 hosts for 2 ranks"),
        (&with("/execution/nodelist", json!(["a", "b["])), "execution.nodelist[1]", "malformed hostlist"),
        (&with("/execution/nodelist", json!("a,b")), "execution.nodelist", "expected a sequence"),
        (&with("/execution/R_lite", json!([{"rank": 0, "children": {}}])), "execution.R_lite[0].rank",
         "expected a string"),
        (&with("/execution/R_lite", json!([{"rank": "1,0", "children": {}}])), "execution.R_lite[0].rank",
         "malformed idset"),
        (&with("/execution/R_lite", json!([{"rank": "0-4294967295", "children": {}}])), "execution.nodelist",
         "2 hosts for 4294967296 ranks"),
        (&with("/execution/R_lite", json!([{"rank": "0-1"}])), "execution.R_lite[0]", "missing field `children`"),
        (&with("/execution/nslots", json!(0)), "execution.nslots", "above zero"),
        (&with("/execution/nslots", json!(-1)), "execution.nslots", "expected u64"),
        (&with("/execution/starttime", json!(-1.0)), "execution.starttime", "seconds since 1970"),
        (&with("/execution/properties", json!({"a": "2"})), "execution.properties", "\"a\" names rank 2"),
        (&with("/execution/properties", json!({"a|b": "0"})), "execution.properties", "has a '|'"),
        (&with("/execution/properties", json!({"": "0"})), "execution.properties", "without a name"),
        (&with("/execution/properties", json!({"a": 0})), "execution.properties.a", "expected a string"),
    ];
    for (text, place, why) in table {
        let error = ResourceSet::from_json(text).unwrap_err();
        assert!(error.place == place && error.why.contains(why), "{text}: {error}");
    }
    let mut times = good.clone();
    times["execution"]["starttime"] = json!(5);
    times["execution"]["expiration"] = json!(5);
    assert!(ResourceSet::from_json(&times.to_string()).unwrap_err().why.contains("not after the starttime"));
    assert!(ResourceSet::from_json(&format!("{good} x")).is_err());
}

/// Regression test: the parser expanded each entry of the nodelist before it counted hosts, so 64 KiB of text took tens
/// of GB of memory.
#[test]
fn all_entries_of_a_nodelist_together_have_the_bounds_of_one() {
    let r = |nodelist: Vec<&str>| {
        json!({"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": nodelist}})
            .to_string()
    };
    let error = ResourceSet::from_json(&r(vec!["a[0-1048575]"; 4_000])).unwrap_err();
    assert_eq!(error.place, "execution.nodelist[1]");
    assert!(error.why.contains("at most 1048576 hosts in all"), "{error}");
    let long = format!("{}[0-200000]", "x".repeat(200));
    let error = ResourceSet::from_json(&r(vec!["a", &long])).unwrap_err();
    assert!(error.place == "execution.nodelist[1]" && error.why.contains("bytes in all"), "{error}");
    assert_eq!(ResourceSet::from_json(&r(vec!["b", "", "a"])).unwrap().hosts().iter().collect::<Vec<_>>(), ["b", "a"]);
}

/// The parser bounds the kinds of resource and the id ranges of a rank. Otherwise one half of a text could give each
/// rank children of its own, and the other half add many kinds to all ranks: the sets would grow with the product of
/// the two halves.
#[test]
fn a_rank_has_so_many_kinds_of_resource_and_no_more() {
    let r = |ranks: u32, kinds: usize| {
        let own = (0..ranks).map(|rank| json!({"rank": rank.to_string(), "children": {"core": rank.to_string()}}));
        let all =
            (1..kinds).map(|kind| json!({"rank": format!("0-{}", ranks - 1), "children": {format!("k{kind}"): "0"}}));
        let lite: Vec<Value> = own.chain(all).collect();
        let hosts = format!("n[0-{}]", ranks - 1);
        ResourceSet::from_json(&json!({"version": 1, "execution": {"R_lite": lite, "nodelist": [hosts]}}).to_string())
    };
    assert_eq!(r(2, MAX_KINDS).unwrap().children(1).unwrap().len(), MAX_KINDS);
    let error = r(3, 200).unwrap_err().to_string();
    assert_eq!(error, "R (RFC 20): execution.R_lite: rank 0 has 65 kinds of resource, and the limit is 64");
    let every_second = |cores: usize| (0..cores as u32).map(|core| core * 2).collect::<IdSet>().to_string();
    let of = |cores: &str| {
        let lite = [json!({"rank": "0", "children": {"core": "0"}}), json!({"rank": "0", "children": {"core": cores}})];
        ResourceSet::from_json(&json!({"version": 1, "execution": {"R_lite": lite, "nodelist": ["a"]}}).to_string())
    };
    assert_eq!(of(&every_second(MAX_RANGES)).unwrap().children(0).unwrap()["core"].pieces(), MAX_RANGES);
    assert!(of(&every_second(MAX_RANGES + 1)).unwrap_err().why.starts_with("rank 0 has 1025 ranges of ids"));
    let wide: Children = (0..1_000).map(|kind| (format!("k{kind}"), set("0"))).collect();
    let one = json!({"version": 1, "execution": {"R_lite": [{"rank": "0", "children": wide}], "nodelist": ["a"]}});
    assert!(ResourceSet::from_json(&one.to_string()).unwrap_err().why.contains("1000 kinds"));
}

/// Regression test: each of two texts of 64 KiB kept the controller busy for half a minute.
#[test]
fn ranks_may_be_named_again_and_not_without_end() {
    let parse = |ranks: usize, lite: Vec<Value>| {
        let hosts = format!("n[0-{}]", ranks - 1);
        let text = json!({"version": 1, "execution": {"R_lite": lite, "nodelist": [hosts]}}).to_string();
        ResourceSet::from_json(&text).map_err(|error| error.why)
    };
    let own =
        |ranks: usize| (0..ranks).map(|rank| json!({"rank": rank.to_string(), "children": {"core": rank.to_string()}}));
    let kinds = |ranks: usize, kinds: usize| {
        (0..kinds).map(move |kind| json!({"rank": format!("0-{}", ranks - 1), "children": {format!("k{kind}"): "0"}}))
    };
    let r = parse(16_384, own(16_384).chain(kinds(16_384, 4)).collect()).unwrap();
    assert_eq!(r.children(7).unwrap().len(), 5);
    assert_eq!(parse(1_000, own(1_000).chain(kinds(1_000, 60)).collect()).unwrap_err(), TOO_OFTEN);
    let windows = (0..2_000).map(
        |at| json!({"rank": format!("{at}-{}", at + 1_000), "children": {format!("k{}", at % 60): format!("{at}")}}),
    );
    assert_eq!(parse(3_000, windows.collect()).unwrap_err(), TOO_OFTEN);
}

fn some() -> impl Strategy<Value = ResourceSet> {
    let rank = (0u32..60, 0u32..4, 0u32..3);
    (prop::collection::btree_map(0u32..60, rank, 0..24), any::<bool>()).prop_map(|(ranks, scheduled)| {
        let entries: Vec<Value> = ranks
            .iter()
            .map(|(rank, (_, cores, gpus))| {
                json!({"rank": rank.to_string(),
                       "children": {"core": IdSet::from(0..=*cores), "gpu": IdSet::from(0..=*gpus)}})
            })
            .collect();
        let hosts: Vec<String> = ranks.iter().map(|(rank, (host, ..))| format!("h{host}-{rank}")).collect();
        let odd: IdSet = ranks.keys().copied().filter(|rank| rank % 2 == 1).collect();
        let mut whole = json!({"version": 1,
                               "execution": {"R_lite": entries, "nodelist": hosts, "properties": {"odd": odd}}});
        if scheduled {
            whole["scheduling"] = json!({"writer": "x"});
        }
        ResourceSet::from_json(&whole.to_string()).unwrap()
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(r in some()) {
        prop_assert_eq!(ResourceSet::from_json(&r.to_json()).unwrap(), r.clone());
        prop_assert_eq!(serde_json::from_value::<ResourceSet>(serde_json::to_value(&r).unwrap()).unwrap(), r);
    }

    #[test]
    fn a_part_and_the_rest_are_the_whole(r in some(), ranks in prop::collection::btree_set(0u32..64, 0..40)) {
        let ranks: IdSet = ranks.into_iter().collect();
        let (part, rest) = (r.fragment(&ranks), r.without(&ranks));
        prop_assert!(part.ranks().is_disjoint(rest.ranks()));
        prop_assert!(part.ranks().is_subset(&ranks));
        for rank in part.ranks().iter() {
            let position = |r: &ResourceSet| r.ranks().iter().position(|of| of == rank).unwrap();
            prop_assert_eq!(part.hosts().get(position(&part)), r.hosts().get(position(&r)));
            prop_assert_eq!(part.children(rank), r.children(rank));
        }
        let both = part.union(&rest).unwrap();
        // In an R without ranks, no part carries the scheduling.
        let whole = if r.is_empty() { r.fragment(&set("")) } else { r };
        prop_assert_eq!(&both, &whole);
        prop_assert_eq!(&rest.union(&part).unwrap(), &whole);
        prop_assert_eq!(&whole.union(&part).unwrap(), &whole);
        prop_assert_eq!(part.fragment(&ranks), part);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,60}") {
        let _ = ResourceSet::from_json(&text);
    }
}
