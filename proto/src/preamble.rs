//! The first frame of each side, with the same form in all versions: the protocol versions that the side speaks, and
//! the release of its program.
//!
//! ```text
//!   "perilog\0" | lowest version u16 | highest version u16 | release, UTF-8, at most 64 bytes
//! ```
//! The versions are big endian. A reader takes at most 64 bytes of the release, up to a NUL, and ignores what follows:
//! a later version may add fields behind a NUL.

use bytes::{BufMut, Bytes, BytesMut};

/// Lowest protocol version that this side speaks.
pub const LOWEST: u16 = 1;
/// Highest protocol version that this side speaks. Sides of this version and of the one before understand each other.
pub const HIGHEST: u16 = 1;

const MAGIC: &[u8; 8] = b"perilog\0";
const MAX_RELEASE: usize = 64;

/// The first frame that a side sends: the protocol versions that it speaks, and its release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble {
    pub lowest: u16,
    pub highest: u16,
    /// The version of the program, as text for people, such as `0.1.0`.
    pub release: String,
}

/// The protocol version that both sides have agreed on, and the peer's release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    pub version: u16,
    pub release: String,
}

/// The reason why this side and the peer cannot talk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the peer does not speak perilog's protocol; it began with {0}")]
    NotPerilog(String),
    #[error("the peer's first message, which names its version, is malformed: {0}")]
    Malformed(String),
    #[error(
        "no common version of the protocol: the peer (release {release}) speaks {lowest} to {highest}, this side \
         {ours_lowest} to {ours_highest}"
    )]
    Versions { release: String, lowest: u16, highest: u16, ours_lowest: u16, ours_highest: u16 },
}

impl Preamble {
    /// Returns this side's preamble; `release`: the program's version, cut to 64 bytes.
    pub fn ours(release: &str) -> Self {
        Self { lowest: LOWEST, highest: HIGHEST, release: crate::bounds::clip(release, MAX_RELEASE) }
    }

    pub fn encode(&self) -> Bytes {
        let release = crate::bounds::clip(&self.release, MAX_RELEASE);
        let mut frame = BytesMut::with_capacity(MAGIC.len() + 4 + release.len());
        frame.put_slice(MAGIC);
        frame.put_u16(self.lowest);
        frame.put_u16(self.highest);
        frame.put_slice(release.as_bytes());
        frame.freeze()
    }

    /// Decodes the peer's first frame.
    ///
    /// # Errors
    /// [`Mismatch`]: the peer does not speak perilog's protocol, or its preamble is malformed.
    pub fn decode(frame: &[u8]) -> Result<Self, Mismatch> {
        let Some(rest) = frame.strip_prefix(MAGIC) else {
            let begin = &frame[..frame.len().min(16)];
            let shown = if begin.is_empty() { "nothing".to_owned() } else { format!("\"{}\"", begin.escape_ascii()) };
            return Err(Mismatch::NotPerilog(shown));
        };
        let [l0, l1, h0, h1, release @ ..] = rest else {
            return Err(Mismatch::Malformed("it ends within the versions".to_owned()));
        };
        let (lowest, highest) = (u16::from_be_bytes([*l0, *l1]), u16::from_be_bytes([*h0, *h1]));
        if lowest > highest {
            return Err(Mismatch::Malformed(format!("versions {lowest} to {highest}")));
        }
        // Skips longer text, and fields of later versions. The release goes to logs, so only plain characters remain.
        let release = release[..release.len().min(MAX_RELEASE)].split(|b| *b == 0).next().unwrap_or_default();
        let release = String::from_utf8_lossy(release).chars().filter(|c| !c.is_control()).collect();
        Ok(Self { lowest, highest, release })
    }
}

/// Decodes the peer's preamble, and returns the highest protocol version that both sides know, with the peer's release.
///
/// # Errors
/// [`Mismatch`]: the peer does not speak perilog's protocol, its preamble is malformed, or the sides have no version in
/// common. The caller logs the error and closes the connection.
pub fn negotiate(frame: &[u8]) -> Result<Agreed, Mismatch> {
    agree(&Preamble::ours(""), &Preamble::decode(frame)?)
}

fn agree(ours: &Preamble, theirs: &Preamble) -> Result<Agreed, Mismatch> {
    let version = ours.highest.min(theirs.highest);
    if version < ours.lowest.max(theirs.lowest) {
        return Err(Mismatch::Versions {
            release: theirs.release.clone(),
            lowest: theirs.lowest,
            highest: theirs.highest,
            ours_lowest: ours.lowest,
            ours_highest: ours.highest,
        });
    }
    Ok(Agreed { version, release: theirs.release.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_work_together_and_strangers_do_not() {
        let side = |lowest, highest| Preamble { lowest, highest, release: "9".to_owned() };
        #[rustfmt::skip]
        let table = [
            ((1, 1), (1, 1), Some(1)), ((1, 2), (1, 1), Some(1)), ((1, 2), (2, 3), Some(2)), ((2, 3), (3, 4), Some(3)),
            ((1, 1), (2, 3), None), ((3, 4), (1, 2), None),
        ];
        for (a, b, expect) in table {
            let (a, b) = (side(a.0, a.1), side(b.0, b.1));
            assert_eq!(agree(&a, &b).ok().map(|agreed| agreed.version), expect, "{a:?} {b:?}");
            assert_eq!(agree(&b, &a).ok().map(|agreed| agreed.version), expect, "{b:?} {a:?}");
        }
        let error = agree(&side(1, 1), &side(3, 4)).unwrap_err().to_string();
        assert!(error.contains("speaks 3 to 4, this side 1 to 1"), "{error}");
    }

    #[test]
    fn a_preamble_is_read_again_and_everything_else_is_named() {
        let ours = Preamble::ours("0.1.0");
        assert_eq!(Preamble::decode(&ours.encode()), Ok(ours.clone()));
        assert_eq!(negotiate(&ours.encode()), Ok(Agreed { version: HIGHEST, release: "0.1.0".to_owned() }));
        // A later version may send more.
        let mut longer = ours.encode().to_vec();
        longer.extend(b"\0more");
        assert_eq!(Preamble::decode(&longer), Ok(ours));
        for (bytes, part) in [
            (&b""[..], "began with nothing"),
            (b"GET / HTTP/1.1\r\n", r#"began with "GET / HTTP/1.1\r\n""#),
            (b"\x16\x03\x01", r#"began with "\x16\x03\x01""#),
            (b"perilog\0\0\x01", "ends within the versions"),
            (b"perilog\0\0\x02\0\x01", "versions 2 to 1"),
        ] {
            let error = Preamble::decode(bytes).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
