//! Targets for the texts of Flux and of its users.

use bytes::BytesMut;
use perilog_core::eventlog::parse_log;
use perilog_core::{IdSet, ResourceSet};
use perilog_flux::broker::wire::Message;
use perilog_terms::{Cap, Site, Terms, json};

use super::texts::check_list;
use super::{Input, one_line};

pub(super) fn resource_set(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let r = match input.parse(|| ResourceSet::from_json(text)) {
        Ok(r) => r,
        Err(error) => return one_line(&error.to_string()),
    };
    assert_eq!(r.hosts().len() as u64, r.ranks().len());
    check_list(r.hosts());
    // The largest would take most of the time.
    if r.hosts().len() > 2000 {
        return;
    }
    let printed = r.to_json();
    assert_eq!(ResourceSet::from_json(&printed).as_ref().ok(), Some(&r), "{printed}");
    // Two fragments share nothing, and add up to the whole.
    let half: IdSet = r.ranks().iter().step_by(2).collect();
    let (one, two) = (r.fragment(&half), r.without(&half));
    assert!(one.ranks().is_disjoint(two.ranks()));
    assert_eq!(one.ranks().union(two.ranks()), *r.ranks());
    if let Ok(both) = one.union(&two) {
        assert_eq!((both.ranks(), both.hosts()), (r.ranks(), r.hosts()));
        for rank in r.ranks().iter() {
            assert_eq!(both.children(rank), r.children(rank), "rank {rank}");
        }
    }
}

/// A job's terms, a line break, a site's cap.
pub(super) fn terms(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let (own, cap) = text.split_once('\n').unwrap_or((text, "{}"));
    let (terms, cap) = input.parse(|| (Terms::read(own), Cap::read(cap)));
    for error in [terms.as_ref().err(), cap.as_ref().err()].into_iter().flatten() {
        one_line(error);
    }
    if let (Ok(terms), Ok(cap)) = (terms, cap) {
        if let Err(why) = terms.check(&cap) {
            one_line(&why);
        }
        let _ = terms.within(&cap, 100);
    }
    // Members and elements of JSON are parts of it.
    for text in json::members(own).into_iter().flatten().flat_map(|(name, value)| [name, value]) {
        assert!(own.contains(text));
    }
}

/// A job's terms, a line break, a site's table, a line break, the jobspec.
pub(super) fn jobspec(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    let mut parts = text.splitn(3, '\n');
    let (terms, site, jobspec) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
    let terms = Terms::read_or_none(terms.unwrap_or_default()).0;
    if let Ok(site) = Site::read(site.unwrap_or_default())
        && let Err(why) = input.parse(|| site.check(&terms, jobspec))
    {
        one_line(&why);
    }
}

pub(super) fn event_log(input: &Input<'_>) {
    let Some(text) = input.text() else { return };
    match input.parse(|| parse_log(text)) {
        Ok(events) => {
            let printed: String = events.iter().map(perilog_core::Event::encode_line).collect();
            assert_eq!(parse_log(&printed).ok(), Some(events), "{printed}");
        }
        Err(error) => one_line(&error.to_string()),
    }
}

/// The first byte is the size of the pieces in which the rest arrives.
pub(super) fn broker(input: &Input<'_>) {
    let Some((piece, bytes)) = input.bytes.split_first() else { return };
    let read = |piece: usize| {
        let (mut buffer, mut messages) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(piece.max(1)) {
            buffer.extend_from_slice(piece);
            loop {
                match Message::decode(&mut buffer) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
        (messages, None)
    };
    let (messages, error) = input.parse(|| read(usize::from(*piece)));
    let (whole, why) = read(usize::MAX);
    assert_eq!((&messages, error.is_some()), (&whole, why.is_some()), "messages by how they arrive");
    for message in messages {
        let _ = message.refusal(38);
        let encoded = message.encode();
        let mut buffer = BytesMut::from(&encoded[..]);
        if let Ok(Some(again)) = Message::decode(&mut buffer) {
            assert_eq!(again.encode(), encoded);
        }
    }
}
