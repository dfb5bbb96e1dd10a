//! The book is true: the test writes the files and types the commands of these pages in order, on nodes with the
//! product installed and without configuration. Stand-ins replace a few commands. Each other command prints the output
//! that the page shows. (The quick start begins with packages: `packages_come_and_go`.)

use anyhow::Result;
use perilog_tests::Bed;
use perilog_tests::book::{self, Page};

/// Copies each node's certificate and key from the controller's node to the node. The page does it by ssh, which nodes
/// of a test lack.
fn copy_certificates(bed: &Bed) -> Result<()> {
    let controller = bed.node("ctl")?;
    for node in bed.nodes().iter().filter(|node| node.name() != "ctl") {
        for (file, mode) in [("ca.pem", 0o644), ("cert.pem", 0o644), ("key.pem", 0o600)] {
            let text = controller.read_file(&format!("/root/nodes/{}/{file}", node.name()))?;
            node.write_with_mode(&format!("/etc/perilog/tls/{file}"), text, mode)?;
        }
    }
    Ok(())
}

/// Runs the guides and the page about trouble one after the other on one cluster. The guide sets up the cluster, an
/// administrator writes scripts on it, and then faults happen.
#[test]
fn the_guides_and_what_helps_in_trouble() {
    let bed = book::machines(&["ctl", "n0", "n1", "n2", "n3"]).unwrap();
    let stand_in = |name: &str| match name {
        "copy certificates" => copy_certificates(&bed),
        // The product is installed, but not as packages; `packages_come_and_go` tests packages.
        "install the packages" => Ok(()),
        "n3 loses its power, and comes back" => bed.node("n3").and_then(|n3| n3.power_fail().and_then(|()| n3.boot())),
        _ => book::unknown(name),
    };
    for page in ["administration.md", "scripts.md", "begin.md", "troubleshooting.md"] {
        let done = Page::open(page).unwrap().run(&bed, None, stand_in).unwrap();
        assert!(done.commands > 3 && done.skipped == 0, "{page}: {done:?}");
    }
}
