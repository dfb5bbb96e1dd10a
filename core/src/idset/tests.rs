//! Tests the set against `BTreeSet`, and the set's texts against RFC 22.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::IdSet;

fn set(text: &str) -> IdSet {
    text.parse().unwrap()
}

#[test]
fn texts_that_are_idsets() {
    #[rustfmt::skip]
    let table = [
        ("", ""), ("[]", ""), ("0", "0"), ("2", "2"), ("[2]", "2"), ("7-9", "7-9"), ("1,7-9,14,16", "1,7-9,14,16"),
        ("1-3,5-6,42", "1-3,5-6,42"), ("[1-3,5-6,42]", "1-3,5-6,42"), ("1,2,3,5,6,42", "1-3,5-6,42"),
        ("[0-1,3-4]", "0-1,3-4"), ("0,1", "0-1"), ("1-2,3-4", "1-4"), ("1-2,3", "1-3"),
        ("1048576", "1048576"), ("2147483647", "2147483647"), ("2147483648", "2147483648"),
        ("4294967295", "4294967295"),
        ("0-4294967295", "0-4294967295"), ("4294967294,4294967295", "4294967294-4294967295"),
    ];
    for (text, expect) in table {
        assert_eq!(set(text).to_string(), expect, "{text:?}");
        assert_eq!(set(text).to_brackets(), format!("[{expect}]"));
    }
}

#[test]
fn texts_that_are_refused_and_where() {
    #[rustfmt::skip]
    let table = [
        // Leading zeros.
        ("01", 0), ("00", 0), ("01,2", 0), ("0-01", 2),
        // Not ascending, or not unique.
        ("3,2", 2), ("3-0", 2), ("1-3,3", 4), ("1-3,2-5", 4), ("2,2,2,2", 2), ("5-5", 2), ("1,1", 2),
        // Other characters.
        ("4.2", 1), ("x", 0), ("1-2x", 3), ("+1", 0), (" 1", 0), ("1 ", 1), (" ", 0), ("0x1", 1), ("1;2", 1), ("٣", 0),
        ("1,٣", 2),
        // Missing parts.
        ("0-", 2), ("-5", 0), ("-", 0), (",", 0), ("1,,2", 2), (",1", 0), ("1,", 2), ("1-2-3", 3), ("1--2", 2),
        ("[1,]", 3), ("[,]", 1),
        // Brackets.
        ("[", 1), ("]", 0), ("[0", 2), ("0]", 1), ("[[1]]", 1), ("1,[2]", 2), ("[1,2],3", 5), ("[1]]", 3), ("[][]", 2),
        ("[]1", 2),
        // Too large: the parser never wraps to a small id.
        ("4294967296", 0), ("1,4294967296", 2), ("0-4294967296", 2), ("99999999999999999999999", 0),
        ("4294967295,4294967295", 11),
        ("4294967295-4294967295", 11), ("0-4294967295,0", 13),
    ];
    for (text, at) in table {
        let error = text.parse::<IdSet>().unwrap_err();
        assert_eq!((error.what, error.at), ("idset", at), "{text:?}: {error}");
    }
}

#[test]
fn an_error_says_what_would_have_been_right() {
    #[rustfmt::skip]
    let table = [
        ("3,2", "malformed idset \"3,2\" at character 3: expected ids in ascending order, here 4 or more"),
        ("1,", "malformed idset \"1,\" at character 3: expected a number"),
        ("[1", "malformed idset \"[1\" at character 3: expected ',', '-', ']' or a digit"),
        ("n1", "malformed idset \"n1\" at character 1: expected a number"),
        ("4294967296", "malformed idset \"4294967296\" at character 1: expected a number up to 4294967295"),
    ];
    for (text, expect) in table {
        assert_eq!(text.parse::<IdSet>().unwrap_err().to_string(), expect);
    }
}

#[test]
fn all_ids_there_are_cost_one_entry() {
    let all = set("0-4294967295");
    let odd_one = set("7");
    assert_eq!((all.len(), all.first(), all.last()), (1 << 32, Some(0), Some(u32::MAX)));
    assert_eq!(all.difference(&odd_one).to_string(), "0-6,8-4294967295");
    assert_eq!(all.union(&odd_one), all);
    assert_eq!(all.intersection(&odd_one), odd_one);
    assert!(odd_one.is_subset(&all) && !all.is_subset(&odd_one) && !all.is_disjoint(&odd_one));
    let mut rest = all.clone();
    rest.subtract(&all);
    assert!(rest.is_empty() && all.is_subset(&all) && rest.is_subset(&all) && rest.is_disjoint(&all));
}

#[test]
fn reversed_ranges_are_empty() {
    let mut ids = set("4");
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = IdSet::from(5..=3);
    ids.insert_range(5, 3);
    ids.remove_range(5, 3);
    assert_eq!((ids.to_string().as_str(), reversed.is_empty()), ("4", true));
}

#[test]
fn serde_is_the_text() {
    let ids = set("0-3,7");
    assert_eq!(serde_json::to_string(&ids).unwrap(), "\"0-3,7\"");
    assert_eq!(serde_json::from_str::<IdSet>("\"[0-3,7]\"").unwrap(), ids);
    let error = serde_json::from_str::<IdSet>("\"3-0\"").unwrap_err().to_string();
    assert!(error.starts_with("malformed idset \"3-0\" at character 3"), "{error}");
}

/// Draws ids near 0 and near `u32::MAX`, where an off-by-one error would wrap.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..24_u32, (u32::MAX - 24)..=u32::MAX]
}

fn model() -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(id(), 0..24)
}

fn of(model: &BTreeSet<u32>) -> IdSet {
    model.iter().copied().collect()
}

/// Asserts that the set has exactly these ids, in ranges that neither overlap nor touch.
fn check(set: &IdSet, model: &BTreeSet<u32>) {
    let ranges: Vec<_> = set.ranges().collect();
    assert!(ranges.iter().all(|(lo, hi)| lo <= hi), "{ranges:?}");
    assert!(ranges.windows(2).all(|w| u64::from(w[0].1) + 1 < u64::from(w[1].0)), "{ranges:?}");
    assert!(set.iter().eq(model.iter().copied()), "{set:?} is not {model:?}");
    assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
    assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
    assert_eq!(&set.to_string().parse::<IdSet>().unwrap(), set);
    assert_eq!(&set.to_brackets().parse::<IdSet>().unwrap(), set);
}

#[test]
fn a_copy_stays_as_it_was() {
    let ids = set("0-3,7");
    let mut copy = ids.clone();
    copy.insert(9);
    copy.remove(1);
    assert_eq!((ids.to_string(), copy.to_string()), ("0-3,7".to_owned(), "0,2-3,7,9".to_owned()));
    copy.remove_range(0, 9);
    assert_eq!((copy.clone(), copy.is_empty()), (IdSet::new(), true));
    copy.remove(5);
    copy.insert_range(5, 4);
    assert_eq!(copy, IdSet::new(), "what has no ids is equal");
}

fn algebra(a: &BTreeSet<u32>, b: &BTreeSet<u32>) -> Result<(), TestCaseError> {
    let (x, y) = (of(a), of(b));
    check(&x.union(&y), &a.union(b).copied().collect());
    check(&x.intersection(&y), &a.intersection(b).copied().collect());
    check(&x.difference(&y), &a.difference(b).copied().collect());
    prop_assert_eq!(x.is_subset(&y), a.is_subset(b));
    prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(b));
    prop_assert_eq!(x == y, a == b);
    let (mut more, mut less) = (x.clone(), x.clone());
    more.extend_with(&y);
    less.subtract(&y);
    prop_assert_eq!(more, x.union(&y));
    prop_assert_eq!(less, x.difference(&y));
    prop_assert!(x.difference(&y).is_subset(&x) && x.difference(&y).is_disjoint(&y));
    Ok(())
}

proptest! {
    #[test]
    fn steps_agree_with_a_btree_set(steps in prop::collection::vec((0..4, id(), id()), 0..40)) {
        let (mut set, mut model) = (IdSet::new(), BTreeSet::new());
        for (step, a, b) in steps {
            // Both ends of a range come from the same group of ids, because the model walks the range.
            let (lo, hi) = if a.abs_diff(b) < 1000 { (a.min(b), a.max(b)) } else { (a, a) };
            match step {
                0 => prop_assert_eq!(set.insert(a), model.insert(a)),
                1 => prop_assert_eq!(set.remove(a), model.remove(&a)),
                2 => { set.insert_range(lo, hi); model.extend(lo..=hi); }
                _ => { set.remove_range(lo, hi); model.retain(|id| !(lo..=hi).contains(id)); }
            }
            prop_assert_eq!(set.contains(b), model.contains(&b));
            check(&set, &model);
        }
    }

    #[test]
    fn algebra_agrees_with_btree_sets(a in model(), b in model()) {
        algebra(&a, &b)?;
    }

    /// With few ranges beside many, set operations look up each of the few in the large set; otherwise they walk both
    /// sets. The results must be the same.
    #[test]
    fn algebra_of_few_beside_many_is_the_same(
        few in prop::collection::btree_set(0..120_u32, 0..4),
        many in prop::collection::btree_set(0..120_u32, 30..80),
    ) {
        let wide: BTreeSet<u32> = few.iter().flat_map(|id| *id..=id + 5).collect();
        for (a, b) in [(&few, &many), (&many, &few), (&wide, &many), (&many, &wide)] {
            algebra(a, b)?;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(any in ".{0,40}", near in "\\[?[0-9,-]{0,12}\\]?") {
        for text in [any, near] {
            match text.parse::<IdSet>() {
                Ok(set) => prop_assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set),
                Err(error) => prop_assert!(error.at <= text.len() && text.is_char_boundary(error.at)),
            }
        }
    }

    /// A set has one form, whatever the order of construction: equal sets are equal as keys.
    #[test]
    fn equal_sets_are_equal_in_every_way(a in model()) {
        let (forward, mut backward) = (of(&a), IdSet::new());
        backward.extend(a.iter().rev().copied());
        prop_assert_eq!(&forward, &backward);
        prop_assert_eq!(forward.cmp(&backward), std::cmp::Ordering::Equal);
        prop_assert_eq!(format!("{forward:?}"), backward.to_brackets());
    }
}

#[test]
fn a_set_with_a_hole_after_every_id_is_still_quick() {
    let text: Vec<String> = (0..100_000_u32).map(|i| (2 * i).to_string()).collect();
    let ids = set(&text.join(","));
    assert_eq!((ids.len(), ids.ranges().count()), (100_000, 100_000));
    assert_eq!(ids.union(&set("0-200000")).ranges().count(), 1);
}
