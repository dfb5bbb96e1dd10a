//! The pages of the edge's list.

use super::*;

/// A site with many jobs: no page of the list is near the 1 MiB that the controller takes, and each job is on one page.
#[test]
fn many_jobs_are_listed_in_pages() {
    let source = json!({"name": "flux", "instance": "system"});
    let mut view = view();
    let job = view.jobs.remove(&ID).unwrap();
    let other = |id| {
        let mut other = job.clone();
        other.id = id;
        (id, other)
    };
    view.jobs.extend((0..3_500).map(other));
    let drain = FluxDrain { reason: "x".repeat(400) };
    view.flux_drains.extend((0..1_500).map(|at| (host(&format!("n{at}")), drain.clone())));
    let pages = sync::pages(&view, &source);
    let entries = |page: &Value, key: &str| page[key].as_array().unwrap().len();
    let count = |key: &str| pages.iter().map(|page| entries(page, key)).sum::<usize>();
    assert_eq!((count("attempts"), count("drains")), (3_500, 1_500));
    for (at, page) in pages.iter().enumerate() {
        assert!(entries(page, "attempts") + entries(page, "drains") <= 1_000 && page.to_string().len() < 266_000);
        assert_eq!(page["continues"], at + 1 < pages.len());
        // The drains come first: the end of a recovery tells drains again that no list has named.
        assert!(at == 0 || entries(page, "drains") == 0 || entries(&pages[at - 1], "attempts") == 0);
    }
    assert!(pages.len() > 5, "{} pages: long entries fill a page by their bytes", pages.len());
}
