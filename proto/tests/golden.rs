//! Compares the bytes of every message with those in `golden/`, the format that other versions of perilog send and
//! receive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::fmt::Debug;
use std::path::PathBuf;

use bytes::Bytes;
use perilog_proto::{
    DecodeError, Decoded, Preamble, decode_from_agent, decode_to_agent, encode_from_agent, encode_to_agent,
};

const OLDER_HELLO: &str = "\
    00010a0f6e332e736974652e6578616d706c6512203031323334353637383961 \
    6263646566303132333435363738396162636465661a2436653266366133302d \
    336630662d346130632d396334622d306631653264336334623561200c2a0530 \
    2e312e3032590a150a1000112233445556778899aabbccddeeff10ac0212210a \
    0a66755a5a7962754e4e79120b08c4e3aae40510b0f2a12c1a0670726f6c6f67 \
    1a07302d332c333030220d6e5b302d335d2c6c6f67696e3128e80730013a0032 \
    600a150a1000112233445556778899aabbccddeeff10ac0212210a0a66755a5a \
    7962754e4e79120b08c4e3aae40510b0f2a12c1a0670726f6c6f671a07302d33 \
    2c333030220d6e5b302d335d2c6c6f67696e3128e807300142070a02120010dc \
    0b32590a150a1000112233445556778899aabbccddeeff10ac0212210a0a6675 \
    5a5a7962754e4e79120b08c4e3aae40510b0f2a12c1a0670726f6c6f671a0730 \
    2d332c333030220d6e5b302d335d2c6c6f67696e3128e80730014a00325b0a15 \
    0a1000112233445556778899aabbccddeeff10ac0212210a0a66755a5a796275 \
    4e4e79120b08c4e3aae40510b0f2a12c1a0670726f6c6f671a07302d332c3330 \
    30220d6e5b302d335d2c6c6f67696e3128e807300152020a003801 \
";

const CHANGED: &str = "the bytes on the wire changed: agents and controllers of other versions would misread each \
                       other. If that is \
    meant, it is a new version of the protocol (preamble::HIGHEST): add fields and messages under new numbers, each \
    in a sample of its own, whose file PERILOG_GOLDEN=write makes. A file that a release has never changes";

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.hex"))
}

/// Returns `bytes` in hexadecimal, 32 bytes a line.
fn hex(bytes: &[u8]) -> String {
    bytes.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn check_bytes(name: &str, encoded: &[u8]) -> Vec<u8> {
    if std::env::var("PERILOG_GOLDEN").is_ok_and(|v| v == "write") {
        std::fs::write(file(name), hex(encoded)).unwrap();
    }
    let golden = std::fs::read_to_string(file(name))
        .unwrap_or_else(|e| panic!("{}: {e}; a new message? {CHANGED}", file(name).display()));
    assert_eq!(hex(encoded), golden, "{name}: {CHANGED}");
    bytes(&golden)
}

fn check<T: PartialEq + Debug>(
    samples: Vec<(String, T)>,
    encode: fn(&T) -> Bytes,
    decode: fn(&[u8]) -> Result<Decoded<T>, DecodeError>,
) {
    for (name, message) in samples {
        let golden = check_bytes(&name, &encode(&message));
        assert_eq!(decode(&golden), Ok(Decoded::Known(message)), "{name}: {CHANGED}");
    }
}

#[test]
fn every_message_has_the_bytes_it_always_had() {
    check(common::samples::to_agent(), encode_to_agent, decode_to_agent);
    check(common::samples::from_agent(), encode_from_agent, decode_from_agent);
}

/// The decoder skips the ranks and hosts of each attempt that older agents list in their Hello, in fields 3 and 4 of a
/// task.
#[test]
fn a_hello_of_an_older_agent_is_read() {
    let (_, hello) = common::samples::from_agent().swap_remove(0);
    assert_eq!(decode_from_agent(&bytes(OLDER_HELLO)), Ok(Decoded::Known(hello)));
}

#[test]
fn the_preamble_has_the_bytes_it_always_had() {
    let preamble = Preamble { lowest: 1, highest: 2, release: "0.1.0".to_owned() };
    let golden = check_bytes("preamble", &preamble.encode());
    assert_eq!(Preamble::decode(&golden), Ok(preamble));
}

#[test]
fn no_golden_file_is_without_its_message() {
    let known = common::samples::to_agent().into_iter().map(|(name, _)| name);
    let mut known: Vec<_> = known.chain(common::samples::from_agent().into_iter().map(|(name, _)| name)).collect();
    known.push("preamble".to_owned());
    for entry in std::fs::read_dir(file("preamble").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            known.iter().any(|k| format!("{k}.hex") == name),
            "{name}: a message that was there is gone; {CHANGED}"
        );
    }
}
