//! The names by which a visitor may call this host.
//!
//! The same-origin rule of browsers keeps a stranger's page from reading the listener's answers. But the author of such
//! a page may point the page's own name at this host's address (DNS rebinding). The origin is then the same, and only
//! the header `Host` differs. So the listener serves its own page and the page's JSON only under names that no stranger
//! can assign: an address, `localhost`, the name that this host gives itself, or a name of the controller's
//! certificate. The site's authority signs those, and nodes dial by them: one of them moves with the controller between
//! two hosts.

use std::net::IpAddr;

use hyper::Request;
use hyper::header::HOST;
use perilog_host::tls::ServerTls;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct Names {
    own: Vec<String>,
    /// The controller's certificate, which a reload may replace; `None`: TLS is off.
    certificate: watch::Receiver<Option<ServerTls>>,
}

impl Names {
    /// Makes the names of this host. `own`: the host name from the kernel; its first label counts, too.
    pub(crate) fn new(own: &str, certificate: watch::Receiver<Option<ServerTls>>) -> Self {
        let own = own.to_ascii_lowercase();
        let label = own.split('.').next().unwrap_or_default().to_owned();
        let mut names = vec!["localhost".to_owned(), own, label];
        names.retain(|name| !name.is_empty());
        names.dedup();
        Self { own: names, certificate }
    }

    /// Returns all names of this host, each once.
    fn all(&self) -> Vec<String> {
        let certificate = self.certificate.borrow();
        let certified = certificate.as_ref().map(ServerTls::names).unwrap_or_default();
        let more = certified.iter().filter(|name| !self.own.contains(name));
        self.own.iter().chain(more).cloned().collect()
    }

    /// Returns `true` if the request names its host at least once, and every such name (URI and `Host`) is a name of
    /// this host.
    pub(super) fn lead_here<B>(&self, request: &Request<B>) -> bool {
        let named = request.uri().authority().map(|authority| Some(authority.as_str()));
        let headers = request.headers().get_all(HOST).iter().map(|value| value.to_str().ok());
        let mut names = named.into_iter().chain(headers).peekable();
        let ours = self.all();
        names.peek().is_some() && names.all(|name| name.is_some_and(|name| is_one_of(&ours, name)))
    }

    /// Returns all names of this host, separated by commas, for the text of a refusal.
    pub(super) fn shown(&self) -> String {
        self.all().join(", ")
    }
}

/// Returns `true` if `authority`, a name or an address with or without a port, is an address or one of these names.
fn is_one_of(names: &[String], authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
        return false;
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    host.parse::<IpAddr>().is_ok() || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(own: &str) -> Names {
        Names::new(own, watch::channel(None).1)
    }

    #[test]
    fn a_name_that_a_stranger_can_give_away_is_none_of_ours() {
        let names = names("Ctl.site.example").all();
        for (name, ours) in [
            ("127.0.0.1", true),
            ("127.0.0.1:5116", true),
            ("10.1.2.3:80", true),
            ("[::1]:5116", true),
            ("[fe80::1]", true),
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("localhost.", true),
            ("ctl", true),
            ("ctl.site.example:5116", true),
            ("", false),
            (":5116", false),
            ("evil.example", false),
            ("evil.example:5116", false),
            ("ctl.evil.example", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1:5116@evil.example", false),
            ("evil.example:localhost", false),
            ("[::1].evil.example", false),
            ("site.example", false),
        ] {
            assert_eq!(is_one_of(&names, name), ours, "{name}");
        }
        assert!(!is_one_of(&self::names("").all(), ""), "a host without a name");
    }

    #[test]
    fn every_name_of_a_request_counts() {
        let names = names("ctl");
        let request = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            request.body(()).unwrap()
        };
        assert!(names.lead_here(&request("/", &["ctl:5116"])));
        assert!(!names.lead_here(&request("/", &[])), "without a name");
        assert!(!names.lead_here(&request("/", &["ctl", "evil.example"])), "two names");
        assert!(!names.lead_here(&request("http://evil.example/", &["ctl"])), "a name in the first line");
        assert!(names.lead_here(&request("http://127.0.0.1/", &["ctl"])));
    }
}
