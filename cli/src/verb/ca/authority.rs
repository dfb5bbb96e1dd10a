//! Certificates out of names and days. No file is touched here.

use std::net::IpAddr;
use std::time::Duration;

use perilog_core::HostName;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};

use crate::fault::Fault;

/// Certificates begin a little before they are made: a node's clock may be behind.
const BACKDATED_MS: u64 = 3_600_000;
const DAY_MS: u64 = 86_400_000;

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
    /// Of an authority's certificate and key (PEM). `not_after_ms`: when the certificate ends.
    pub(super) fn new(cert: &str, key: &str, not_after_ms: u64) -> Result<Self, Fault> {
        Ok(Self { issuer: Issuer::from_ca_cert_pem(cert, KeyPair::from_pem(key)?)?, not_after_ms })
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
    let moment = |ms: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(ms / 1000);
    let mut params = CertificateParams::default();
    // Its own default subject would be "rcgen self signed cert".
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = moment(now_ms.saturating_sub(BACKDATED_MS));
    params.not_after = moment(until_ms);
    params
}
