use super::*;

#[test]
fn who_may_call_what() {
    let peer = |uid, gid, groups: &[u32]| PeerCred { uid, gid, pid: 1, groups: groups.to_vec() };
    let (root, member, also, other) = (peer(0, 0, &[]), peer(7, 50, &[]), peer(8, 8, &[4, 50]), peer(9, 9, &[9]));
    let access = |group, read| Access { group, read };
    #[rustfmt::skip]
    let table = [
        (access(None, Read::Group), [true, false, false, false], [true, false, false, false], 0o600),
        (access(Some(50), Read::Group), [true, true, true, false], [true, true, true, false], 0o660),
        (access(None, Read::Anyone), [true, false, false, false], [true, true, true, true], 0o666),
        (access(Some(50), Read::Anyone), [true, true, true, false], [true, true, true, true], 0o666),
    ];
    for (access, change, look, mode) in table {
        let allowed = |kind| [&root, &member, &also, &other].map(|peer| access.allows(kind, peer));
        assert_eq!((allowed(Kind::Change), allowed(Kind::Look)), (change, look), "{access:?}");
        assert_eq!(socket_mode(access), mode);
    }
}

/// What looks is named; whatever is added later is a change until somebody says otherwise.
#[test]
fn what_is_not_known_to_look_only_is_a_change() {
    let methods = INTERFACE.text.lines().filter_map(|line| line.strip_prefix("method ")?.split('(').next());
    let look: Vec<&str> = methods.filter(|method| kind(method) == Kind::Look).collect();
    assert_eq!(look, ["Events", "Ps", "Show", "Nodes", "Why", "Status"]);
    assert_eq!(kind("Frob"), Kind::Change);
}
