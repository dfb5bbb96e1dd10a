//! Certificates out of names and days, and the list of those that count no more.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use perilog_core::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};

use super::files::{self, CA_CERT, CA_KEY};
use super::read::certificates;
use crate::fault::Fault;

/// Certificates begin a little before they are made: a node's clock may be behind.
const BACKDATED_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;

/// What `rcgen` takes for a moment, of milliseconds since the epoch.
macro_rules! moment {
    ($ms:expr) => {
        date_time_ymd(1970, 1, 1) + Duration::from_secs($ms / 1000)
    };
}

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// An agent: dials the controller and speaks for its own host.
    Node,
    /// The controller: answers agents under its names and addresses.
    Controller,
}

/// A certificate and its key, both PEM.
pub(super) struct Made {
    pub(super) cert: String,
    pub(super) key: String,
}

/// A new authority. `now_ms`: milliseconds since the epoch.
pub(super) fn authority(name: &str, days: u32, now_ms: u64) -> Result<Made, Fault> {
    let mut params = lasting(now_ms, now_ms + u64::from(days) * DAY_MS);
    params.distinguished_name.push(DnType::CommonName, name);
    // It signs nodes and controllers, never another authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok(Made { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// One that signs.
pub(super) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    not_after_ms: u64,
}

impl Signer {
    /// Of the authority in this directory, which has not run out.
    pub(super) fn open(dir: &Path, now_ms: u64) -> Result<Self, Fault> {
        let path = dir.join(CA_CERT);
        let cert = files::read(&path)?;
        let key = files::read_secret(&dir.join(CA_KEY))?;
        let not_after_ms = certificates(&path, &cert)?.first().map(|read| read.not_after_ms);
        let Some(not_after_ms) = not_after_ms.filter(|end| *end > now_ms) else {
            return Err(Fault::Usage(format!(
                "{} has expired: make a new authority (perilog ca init)",
                path.display()
            )));
        };
        Ok(Self { issuer: Issuer::from_ca_cert_pem(&cert, KeyPair::from_pem(&key)?)?, not_after_ms })
    }

    /// A revocation list (PEM). It lasts as long as the authority: whoever has no newer one goes by it.
    pub(super) fn revocations(&self, number: u64, list: &[Revoked], now_ms: u64) -> Result<String, Fault> {
        let certificate = |revoked: &Revoked| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&bytes(&revoked.serial)),
            revocation_time: moment!(revoked.at_ms),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: moment!(now_ms.saturating_sub(BACKDATED_MS)),
            next_update: moment!(self.not_after_ms),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: list.iter().map(certificate).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }

    /// A certificate for these names, the first of which is the subject; it does not outlive its authority.
    pub(super) fn issue(&self, role: Role, names: &[Name], days: u32, now_ms: u64) -> Result<Made, Fault> {
        let mut params = lasting(now_ms, (now_ms + u64::from(days) * DAY_MS).min(self.not_after_ms));
        if let Some(first) = names.first() {
            params.distinguished_name.push(DnType::CommonName, first.text());
        }
        params.subject_alt_names = names.iter().map(Name::alternative).collect::<Result<_, _>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match role {
            Role::Node => ExtendedKeyUsagePurpose::ClientAuth,
            Role::Controller => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Made { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// A certificate that counts no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Revoked {
    /// Hexadecimal, two digits a byte.
    pub(super) serial: String,
    /// Milliseconds since the epoch.
    pub(super) at_ms: u64,
}

/// Of hexadecimal digits, two a byte.
fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = |at: usize| hexadecimal.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hexadecimal.len()).step_by(2).filter_map(digits).collect()
}

/// A name that a peer is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    Host(HostName),
    Address(IpAddr),
}

impl Name {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Host(host) => host.to_string(),
            Self::Address(address) => address.to_string(),
        }
    }

    fn alternative(&self) -> Result<SanType, rcgen::Error> {
        Ok(match self {
            Self::Host(host) => SanType::DnsName(host.as_str().try_into()?),
            Self::Address(address) => SanType::IpAddress(*address),
        })
    }
}

fn lasting(now_ms: u64, until_ms: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Its own default subject would be "rcgen self signed cert".
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = moment!(now_ms.saturating_sub(BACKDATED_MS));
    params.not_after = moment!(until_ms);
    params
}
