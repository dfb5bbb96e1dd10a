//! Tests the parser and the formatter of hostlists against RFC 29.

use proptest::prelude::*;

use super::HostList;
use crate::IdSet;

fn list(text: &str) -> HostList {
    text.parse().unwrap()
}

fn joined(list: &HostList) -> String {
    list.iter().collect::<Vec<_>>().join(",")
}

#[test]
fn texts_that_are_hostlists_expanded_and_folded() {
    #[rustfmt::skip]
    let table = [
        // Examples of RFC 29.
        ("", "", ""),
        ("foox,fooy,fooz", "foox,fooy,fooz", "foox,fooy,fooz"),
        ("[1-3,5-6]", "1,2,3,5,6", "[1-3,5-6]"),
        ("foo[1-5]", "foo1,foo2,foo3,foo4,foo5", "foo[1-5]"),
        ("foo[0-4]-eth2", "foo0-eth2,foo1-eth2,foo2-eth2,foo3-eth2,foo4-eth2", "foo[0-4]-eth2"),
        ("foo1,foo1,foo1", "foo1,foo1,foo1", "foo[1,1,1]"),
        ("[00-02]", "00,01,02", "[00-02]"),
        ("[00-2]", "00,01,02", "[00-02]"),
        ("foo[1,1,2,1]", "foo1,foo1,foo2,foo1", "foo[1,1-2,1]"),
        // RFC 29 says foo005,foo004,foo011: here the parser follows Flux itself.
        ("foo[005,4,11-13]", "foo005,foo4,foo11,foo12,foo13", "foo005,foo[4,11-13]"),
        ("n[10-11,08-09]", "n10,n11,n08,n09", "n[10-11],n[08-09]"),
        ("n[054,31]", "n054,n31", "n054,n31"),
        ("foo[1,01]", "foo1,foo01", "foo1,foo01"),
        ("foo[00,000]", "foo00,foo000", "foo00,foo000"),
        // Examples of Flux's own tests.
        ("foo-1a-2,foo-1a-3", "foo-1a-2,foo-1a-3", "foo-1a-[2-3]"),
        ("foo1,fooi,foo2,foo3", "foo1,fooi,foo2,foo3", "foo1,fooi,foo[2-3]"),
        (",1,2,3,4,5,9,", "1,2,3,4,5,9", "[1-5,9]"),
        ("foo[1,3]-bar", "foo1-bar,foo3-bar", "foo[1,3]-bar"),
        ("[00-03]p", "00p,01p,02p,03p", "[00-03]p"),
        ("foo[09-11]", "foo09,foo10,foo11", "foo[09-11]"),
        ("foo9,foo10", "foo9,foo10", "foo[9-10]"),
        ("foo1,foo01", "foo1,foo01", "foo1,foo01"),
        ("foo[5-5]", "foo5", "foo5"),
        // Further examples.
        (",", "", ""),
        ("foo", "foo", "foo"),
        ("[7]", "7", "7"),
        ("foo[3]", "foo3", "foo3"),
        ("foo[2-3],foo[4-5]", "foo2,foo3,foo4,foo5", "foo[2-5]"),
        ("n1.c2.site,n2.c2.site,n7.c2.site", "n1.c2.site,n2.c2.site,n7.c2.site", "n[1-2,7].c2.site"),
        ("r1n1,r1n2,r2n1,r2n2", "r1n1,r1n2,r2n1,r2n2", "r1n[1-2],r2n[1-2]"),
        ("foo[098-101]", "foo098,foo099,foo100,foo101", "foo[098-101]"),
        ("foo[98-101]", "foo98,foo99,foo100,foo101", "foo[98-101]"),
        ("foo[08,9,100]", "foo08,foo9,foo100", "foo08,foo[9,100]"),
        ("foo[08-09,100]", "foo08,foo09,foo100", "foo[08-09,100]"),
        ("foo[008-09]", "foo008,foo009", "foo[008-009]"),
        ("foo0,foo00,foo000", "foo0,foo00,foo000", "foo0,foo00,foo000"),
        // Folding once put a lone 0 into brackets that pad the 0 to 00.
        ("foo00,foo0", "foo00,foo0", "foo00,foo0"),
        ("a1b1,a2b2", "a1b1,a2b2", "a1b1,a2b2"),
        ("n10,n20,n21", "n10,n20,n21", "n[10,20-21]"),
        ("foo,foo", "foo,foo", "foo,foo"),
        ("n3,n2,n1", "n3,n2,n1", "n[3,2,1]"),
        ("foo18446744073709551615,foo18446744073709551616", "foo18446744073709551615,foo18446744073709551616",
            "foo18446744073709551615,foo18446744073709551616"),
        ("foo[18446744073709551614-18446744073709551615]", "foo18446744073709551614,foo18446744073709551615",
            "foo[18446744073709551614-18446744073709551615]"),
        ("a-b_c.d~e!{}\"'", "a-b_c.d~e!{}\"'", "a-b_c.d~e!{}\"'"),
    ];
    for (text, expanded, folded) in table {
        let hosts = list(text);
        assert_eq!(joined(&hosts), expanded, "{text:?}");
        assert_eq!(hosts.to_string(), folded, "{text:?}");
        assert_eq!(list(folded), hosts);
        assert_eq!(HostList::from_names(hosts.iter()).unwrap(), hosts);
    }
}

/// Reads 3,000 lists that Flux wrote (`flux.txt`) as Flux reads them. Flux pads each range by its own first id.
#[test]
fn lists_that_flux_wrote_are_read_as_flux_reads_them() {
    let lines = include_str!("flux.txt").lines().filter(|line| !line.starts_with('#'));
    let wrong = lines.clone().filter(|line| {
        let (text, names) = line.split_once('\t').unwrap();
        let hosts = text.parse::<HostList>();
        !hosts.is_ok_and(|hosts| hosts.iter().eq(names.split(' ')) && list(&hosts.to_string()) == hosts)
    });
    assert_eq!((lines.clone().count(), wrong.collect::<Vec<_>>()), (3_000, vec![]));
}

#[test]
fn texts_that_are_refused_and_where() {
    let long = "x".repeat(254);
    let wide = format!("n[{}1]", "0".repeat(253));
    let too_much = format!("{}[0-1048575]", "x".repeat(200));
    #[rustfmt::skip]
    let table = [
        // Brackets.
        ("foo[]", 4), ("foo[", 4), ("foo]", 3), ("foo[1,3", 7), ("foo[[1,3]", 4), ("foo[1", 5), ("[", 1), ("]", 0),
        ("foo[1]]", 6),
        // A second idlist in one expression is an error: a bracket is never part of a name.
        ("foo[1-2]x[3-4]", 9), ("foo[1][2]", 6), ("a,foo[1]x[", 9), ("n[0-1].c[2]", 8),
        // Ids.
        ("foo[3-1]", 6), ("foo[x-y]", 4), ("foo[0-1,2--5]", 10), ("foo[1,,2]", 6), ("foo[,1]", 4), ("foo[1,]", 6),
        ("foo[1-]", 6),
        ("foo[-1]", 4), ("foo[1-2-3]", 7), ("foo[1x]", 5), ("foo[+1]", 4),
        // The zeros would be lost, because the first id of the range has none: the result would name another host.
        ("foo[8-011]", 6), ("foo[00-001]", 7), ("foo[1,1-02]", 8),
        // White space separates nothing.
        ("foo bar", 3), ("foo\tbar", 3), (" foo", 0), ("foo,\n", 4), ("foo[ 1]", 4), ("foo[1 ]", 5), ("foo[1] ", 6),
        ("foo, bar", 4),
        ("fö", 1), ("foo[1]ö", 6), ("foo\u{7f}", 3), ("foo[٣]", 4),
        // More than a bound allows; the parser refuses before it expands names.
        ("foo[0-1048576]", 4), ("a,foo[0-1048575]", 6), ("foo[1,5-1048580]", 6), ("foo[0-18446744073709551615]", 4),
        ("foo[18446744073709551616]", 4), (long.as_str(), 0), (wide.as_str(), 2), (too_much.as_str(), 201),
    ];
    for (text, at) in table {
        let error = text.parse::<HostList>().unwrap_err();
        assert_eq!((error.what, error.at), ("hostlist", at), "{text:?}: {error}");
    }
}

#[test]
fn an_error_says_what_would_have_been_right() {
    #[rustfmt::skip]
    let table = [
        ("n[0-1", "malformed hostlist \"n[0-1\" at character 6: expected ',', '-', ']' or a digit"),
        ("n[0-1]x[2]",
         "malformed hostlist \"n[0-1]x[2]\" at character 8: expected one pair of brackets in an expression"),
        ("n[1-02]", "malformed hostlist \"n[1-02]\" at character 5: expected no more leading zeros than the first id \
                     of the range has"),
        ("n[0-9999999]", "malformed hostlist \"n[0-9999999]\" at character 3: expected at most 1048576 hosts in all"),
    ];
    for (text, expect) in table {
        assert_eq!(text.parse::<HostList>().unwrap_err().to_string(), expect);
    }
}

#[test]
fn names_are_counted_before_they_are_expanded() {
    #[rustfmt::skip]
    let table = [
        ("", 0), (",", 0), ("a", 1), ("a,,b", 2), ("n[0-3,7]-ib,login", 6), ("n[0-1048575]", 1 << 20),
        ("n[0-18446744073709551615],a", u64::MAX), ("a[0-9],b[0-9],[1]", 21),
    ];
    for (text, expect) in table {
        assert_eq!(HostList::count(text), Ok(expect), "{text:?}");
    }
    assert_eq!(HostList::count("n[1-").unwrap_err().at, 4);
}

#[test]
fn names_are_refused_where_they_could_not_be_read_again() {
    let mut hosts = list("n0");
    for (name, at) in [("", 0), ("a,b", 1), ("n[0]", 1), ("a b", 1), ("é", 0), ("x".repeat(254).as_str(), 0)] {
        assert_eq!(hosts.push(name).unwrap_err().at, at, "{name:?}");
    }
    hosts.push("n0").unwrap();
    assert_eq!(hosts.to_string(), "n[0,0]");
    let mut full = list("n[0-1048575]");
    assert_eq!(full.len(), HostList::MAX_HOSTS);
    assert!(full.push("x").is_err());
}

#[test]
fn the_longest_list_there_can_be_is_read_folded_and_read_again() {
    let full = list("foo[0-1048575]");
    assert_eq!((full.len(), full.get(1_048_575)), (1 << 20, Some("foo1048575")));
    assert_eq!(full.to_string(), "foo[0-1048575]");
    assert_eq!(full.first_duplicate(), None);
}

#[test]
fn looking_into_a_list() {
    let hosts = list("n[0-3],login,n1");
    assert_eq!((hosts.len(), hosts.is_empty(), HostList::new().is_empty()), (6, false, true));
    assert_eq!((hosts.get(0), hosts.get(4), hosts.get(6)), (Some("n0"), Some("login"), None));
    assert_eq!((hosts.position("n1"), hosts.position("n"), hosts.position("n01")), (Some(1), None, None));
    assert!(hosts.contains("login") && !hosts.contains("log"));
    assert_eq!((hosts.first_duplicate(), list("n[0-3]").first_duplicate()), (Some("n1"), None));
    let select = |ids: &str| hosts.select(&ids.parse::<IdSet>().unwrap()).to_string();
    assert_eq!(select("0-1,4"), "n[0-1],login");
    assert_eq!(
        (select(""), select("6-9"), select("5-4294967295"), select("0-4294967295")),
        (String::new(), String::new(), "n1".to_owned(), hosts.to_string())
    );
}

#[test]
fn serde_is_the_folded_text() {
    let hosts = list("n0,n1,n2");
    assert_eq!(serde_json::to_string(&hosts).unwrap(), "\"n[0-2]\"");
    assert_eq!(serde_json::from_str::<HostList>("\"n[0-2]\"").unwrap(), hosts);
    assert!(serde_json::from_str::<HostList>("\"n[0-2\"").is_err());
}

proptest! {
    /// A list of names folds to a text that parses as the same names. The names drawn here are the hardest case: they
    /// differ in few characters, and stand in any order.
    #[test]
    fn folding_loses_nothing(names in prop::collection::vec("[an.+]{0,1}[0-3]{0,3}[.a-]?[019]{1,2}[b.]?", 0..24)) {
        let hosts = HostList::from_names(&names).unwrap();
        let folded = hosts.to_string();
        prop_assert_eq!(folded.parse::<HostList>().unwrap(), hosts.clone(), "{}", folded);
        prop_assert!(hosts.iter().eq(names.iter().map(String::as_str)));
        prop_assert!(folded.len() <= names.join(",").len() + 2 * names.len());
    }

    #[test]
    fn folding_loses_nothing_of_any_name(names in prop::collection::vec("[!-+.-Z^-~-]{1,20}", 0..12)) {
        let hosts = HostList::from_names(&names).unwrap();
        prop_assert_eq!(hosts.to_string().parse::<HostList>().unwrap(), hosts);
    }

    #[test]
    fn any_text_is_read_or_refused(any in ".{0,40}", near in "[an0-9,\\[\\]-]{0,16}",
                                   nearer in "(n?\\[[0-9]{1,3}(-[0-9]{2,4})?(,0?[0-9])?\\]a?,?){0,3}") {
        for text in [any, near, nearer] {
            match text.parse::<HostList>() {
                Ok(hosts) => {
                    prop_assert_eq!(HostList::count(&text), Ok(hosts.len() as u64));
                    prop_assert_eq!(hosts.to_string().parse::<HostList>().unwrap(), hosts);
                }
                Err(error) => prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at)),
            }
        }
    }
}
