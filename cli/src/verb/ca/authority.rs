//! An authority's signature: makes certificates with names and a lifetime in days, and the list of revoked
//! certificates.

use std::net::IpAddr;
use std::path::Path;

use perilog_core::HostName;
use perilog_host::authority::{self, BACKDATED_MS};
pub(super) use perilog_host::authority::{Made, Revoked};
use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType};

use super::files::{self, CA_CERT, CA_KEY};
use super::read::certificates;
use crate::fault::Fault;

const DAY_MS: u64 = 86_400_000;

/// Role of a certificate's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// A node: its agent dials the controller, and speaks for the host that the certificate names.
    Node,
    /// The controller: answers agents under the names and addresses in the certificate.
    Controller,
}

/// Makes the certificate and the key of a new authority that lasts `days`. `now_ms`: milliseconds since 1970.
pub(super) fn new(name: &str, days: u32, now_ms: u64) -> Result<Made, Fault> {
    Ok(authority::new(name, now_ms.saturating_sub(BACKDATED_MS), now_ms + u64::from(days) * DAY_MS)?)
}

/// Makes the certificate of a new authority that lasts `days`, for a key that exists (PEM).
pub(super) fn of_key(name: &str, days: u32, now_ms: u64, key: &str) -> Result<Made, Fault> {
    let until_ms = now_ms + u64::from(days) * DAY_MS;
    Ok(authority::of_key(name, now_ms.saturating_sub(BACKDATED_MS), until_ms, key)?)
}

/// An authority that signs certificates with its key.
pub(super) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    not_after_ms: u64,
    subject: String,
}

/// Prefix of the name that the controller gives its enrolment authority.
const ENROLS: &str = "CN=perilog enrolment of ";

impl Signer {
    /// Reads the authority in directory `dir`; refuses an expired authority.
    pub(super) fn open(dir: &Path, now_ms: u64) -> Result<Self, Fault> {
        let path = dir.join(CA_CERT);
        let cert = files::read(&path)?;
        let key = files::read_secret(&dir.join(CA_KEY))?;
        let own = certificates(&path, &cert)?.into_iter().next();
        let Some(own) = own.filter(|own| own.not_after_ms > now_ms) else {
            return Err(Fault::Usage(format!(
                "{} has expired; make a new authority (perilog ca init)",
                path.display()
            )));
        };
        let enrols = own.subject.starts_with(ENROLS);
        files::is_own(dir, enrols)?;
        files::is_own(&dir.join(CA_KEY), enrols)?;
        Self::of(&cert, &key, own.not_after_ms, own.subject)
    }

    /// Returns the authority with this certificate and this key (PEM), which ends at `not_after_ms`.
    pub(super) fn of(cert: &str, key: &str, not_after_ms: u64, subject: String) -> Result<Self, Fault> {
        let issuer = Issuer::from_ca_cert_pem(cert, KeyPair::from_pem(key)?)?;
        Ok(Self { issuer, not_after_ms, subject })
    }

    /// Returns `true` if this is the authority by which the controller enrols nodes. The controller reads the
    /// revocation list of that authority where this command writes it.
    pub(super) fn enrols(&self) -> bool {
        self.subject.starts_with(ENROLS)
    }

    /// Makes a revocation list (PEM) with the certificates in `list`. `number`: the number of the new list (CRL number,
    /// RFC 5280), one more than that of the list before. The revocation list is valid as long as the authority.
    pub(super) fn revocations(&self, number: u64, list: &[Revoked], now_ms: u64) -> Result<String, Fault> {
        Ok(authority::revocations(&self.issuer, number, list, now_ms, self.not_after_ms)?)
    }

    /// Issues a certificate for these names, with the first name as subject. The certificate expires no later than the
    /// authority.
    pub(super) fn issue(&self, role: Role, names: &[Name], days: u32, now_ms: u64) -> Result<Made, Fault> {
        let until_ms = (now_ms + u64::from(days) * DAY_MS).min(self.not_after_ms);
        let mut params = authority::lasting(now_ms.saturating_sub(BACKDATED_MS), until_ms);
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

/// A host name or an address in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verb) enum Name {
    Host(HostName),
    Address(IpAddr),
}

impl Name {
    pub(in crate::verb) fn text(&self) -> String {
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
