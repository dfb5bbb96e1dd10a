//! Certificate authority: `perilog ca` uses one for an administrator, the controller uses one for the nodes that it
//! enrols. The authority's directory:
//!
//! ```text
//!   ca.pem, ca-key.pem     the authority     issued.jsonl   each issued certificate, and its host
//!   crl.pem                the revoked certificates
//! ```
//! Keys are EC P-256. Times are milliseconds since 1970.

mod forget;
mod issued;
mod lock;

use std::collections::HashSet;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateRevocationListParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::{CertificateRevocationList, FromDer};

pub use rcgen::{CertificateParams, Error, Issuer, KeyPair};

pub use forget::forget;
pub use issued::{ISSUED, Issued, Known, known, of_host, remember, run_out};
pub use lock::Lock;

pub const CA_CERT: &str = "ca.pem";
pub const CA_KEY: &str = "ca-key.pem";
pub const CRL: &str = "crl.pem";

/// Milliseconds by which a certificate's validity begins before its issue: a node's clock may be behind.
pub const BACKDATED_MS: u64 = 3_600_000;

/// Returns the canonical form of a host name, in which perilog certifies, revokes and looks up hosts. DNS names are
/// equal regardless of case and final dots (RFC 4343, RFC 1034 section 3.1); comparing other forms would make one host
/// two.
pub fn canonical(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Converts milliseconds to the time type of `rcgen`.
macro_rules! moment {
    ($ms:expr) => {
        date_time_ymd(1970, 1, 1) + Duration::from_secs($ms / 1000)
    };
}

/// A certificate and its private key, both PEM.
#[derive(Debug)]
pub struct Made {
    pub cert: String,
    pub key: String,
}

/// Makes the certificate and key of a new authority named `name`, valid between these times (milliseconds since
/// 1970).
///
/// # Errors
/// No error is known, except that the kernel may lack random numbers for a key.
pub fn new(name: &str, from_ms: u64, until_ms: u64) -> Result<Made, Error> {
    self_signed(name, from_ms, until_ms, &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// Makes the certificate of a new authority for a key that exists (PEM).
///
/// # Errors
/// The text is no key.
pub fn of_key(name: &str, from_ms: u64, until_ms: u64, key: &str) -> Result<Made, Error> {
    self_signed(name, from_ms, until_ms, &KeyPair::from_pem(key)?)
}

fn self_signed(name: &str, from_ms: u64, until_ms: u64, key: &KeyPair) -> Result<Made, Error> {
    let mut params = lasting(from_ms, until_ms);
    params.distinguished_name.push(DnType::CommonName, name);
    // This authority signs nodes and controllers, never another authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(Made { cert: params.self_signed(key)?.pem(), key: key.serialize_pem() })
}

/// Returns the parameters with which each certificate of perilog begins: no subject yet, and validity between these
/// times (milliseconds since 1970).
pub fn lasting(from_ms: u64, until_ms: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    // The default subject of rcgen would be "rcgen self signed cert".
    params.distinguished_name = DistinguishedName::new();
    params.not_before = moment!(from_ms);
    params.not_after = moment!(until_ms);
    params
}

/// A certificate that the authority has revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    /// The serial number in hexadecimal, two digits a byte.
    pub serial: String,
    pub at_ms: u64,
}

/// Signs a revocation list (PEM; RFC 5280, section 5). Hosts without a newer list use it until `until_ms`.
///
/// # Errors
/// `until_ms` is not after the list's begin, or the authority's key usage does not allow signing lists.
pub fn revocations(
    issuer: &Issuer<'_, KeyPair>,
    number: u64,
    list: &[Revoked],
    now_ms: u64,
    until_ms: u64,
) -> Result<String, Error> {
    let certificate = |revoked: &Revoked| RevokedCertParams {
        serial_number: SerialNumber::from_slice(&bytes(&revoked.serial)),
        revocation_time: moment!(revoked.at_ms),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: moment!(now_ms.saturating_sub(BACKDATED_MS)),
        next_update: moment!(until_ms),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: list.iter().map(certificate).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer)?.pem()
}

/// Returns the serial numbers (hexadecimal, two digits a byte) on a revocation list (PEM).
///
/// # Errors
/// A sentence with the reason why `pem` is no revocation list.
pub fn revoked(pem: &[u8]) -> Result<HashSet<String>, String> {
    let block = Pem::iter_from_buffer(pem).find_map(Result::ok).filter(|block| block.label == "X509 CRL");
    let block = block.ok_or("no revocation list in PEM form")?;
    let (_, list) = CertificateRevocationList::from_der(&block.contents)
        .map_err(|error| format!("malformed revocation list ({error})"))?;
    let serials = list.iter_revoked_certificates().map(|revoked| hexadecimal(&revoked.user_certificate.to_bytes_be()));
    Ok(serials.collect())
}

/// Formats bytes in hexadecimal, two digits a byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Decodes hexadecimal text, two digits a byte; skips pairs that are no digits.
fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = |at: usize| hexadecimal.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hexadecimal.len()).step_by(2).filter_map(digits).collect()
}

/// The public key that a host asks the authority to certify. The signer ignores the rest of the request, and chooses
/// names, usages and times.
#[derive(Debug)]
pub struct Requested(CertificateSigningRequestParams);

impl Requested {
    /// Reads a signing request (PEM, PKCS #10) and checks its signature, which proves that the sender has the key.
    /// Accepts EC P-256 only.
    ///
    /// # Errors
    /// A sentence for the sender: `pem` is no signing request, its signature is wrong, or its key is not EC P-256.
    pub fn read(pem: &str) -> Result<Self, String> {
        let read = CertificateSigningRequestParams::from_pem(pem)
            .map_err(|error| format!("invalid certificate request: {error}"))?;
        if *read.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err("invalid certificate request: the key is not EC P-256".to_owned());
        }
        Ok(Self(read))
    }

    /// Returns the requested public key (SubjectPublicKeyInfo, DER).
    pub fn key(&self) -> Vec<u8> {
        self.0.public_key.subject_public_key_info()
    }

    /// Issues a certificate (PEM) by which `host` can be a client, never a server or an authority. `serial` is random.
    ///
    /// # Errors
    /// `host` has a character that IA5 text (ASCII) does not have.
    pub fn certify(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        host: &str,
        serial: &[u8; 16],
        from_ms: u64,
        until_ms: u64,
    ) -> Result<String, Error> {
        let mut params = lasting(from_ms, until_ms);
        params.distinguished_name.push(DnType::CommonName, host);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(host.try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        // The number does not depend on the key, which a renewed certificate keeps: each certificate must be revocable
        // by itself.
        params.serial_number = Some(SerialNumber::from_slice(serial));
        Ok(params.signed_by(&self.0.public_key, issuer)?.pem())
    }
}

/// Makes a private key; returns it as PEM.
///
/// # Errors
/// The errors of [`new`].
pub fn key() -> Result<String, Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?.serialize_pem())
}

/// Returns the public half (SubjectPublicKeyInfo, DER) of a private key (PEM).
///
/// # Errors
/// `key` is no key.
pub fn public_key(key: &str) -> Result<Vec<u8>, Error> {
    Ok(KeyPair::from_pem(key)?.subject_public_key_info())
}

/// Makes a signing request (PEM) for a private key (PEM).
///
/// # Errors
/// `key` is no key.
pub fn request(key: &str) -> Result<String, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serialize_request(&KeyPair::from_pem(key)?)?.pem()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_request_decides_nothing_but_the_key() {
        let made = new("test", 0, 4_000_000_000_000).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&made.cert, KeyPair::from_pem(&made.key).unwrap()).unwrap();
        // This request asks for an authority and a controller of all names.
        let mut greedy = CertificateParams::new(vec!["ctl".to_owned()]).unwrap();
        greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        greedy.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = KeyPair::from_pem(&key().unwrap()).unwrap();
        let csr = greedy.serialize_request(&own).unwrap().pem().unwrap();
        let read = Requested::read(&csr).unwrap();
        assert_eq!(read.key(), own.subject_public_key_info());
        let cert = read.certify(&issuer, "n0", &[7; 16], 0, 1_000_000).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(cert.as_bytes()).unwrap();
        let cert = pem.parse_x509().unwrap();
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(!cert.is_ca() && usage.client_auth && !usage.server_auth);
        let names = &cert.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(format!("{names:?}"), r#"[DNSName("n0")]"#);
        assert_eq!(cert.serial.to_bytes_be(), [7; 16]);
    }

    #[test]
    fn a_malformed_or_wrongly_signed_request_is_refused() {
        let csr = request(&key().unwrap()).unwrap();
        assert!(Requested::read(&csr).is_ok());
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        for (text, part) in [
            ("", "invalid certificate request"),
            (
                "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
                "invalid certificate request",
            ),
            (&request(&other).unwrap(), "not EC P-256"),
        ] {
            let error = Requested::read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        // The last byte of the signature.
        let mut der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(csr.as_bytes()).unwrap().to_vec();
        *der.last_mut().unwrap() ^= 1;
        let forged = CertificateSigningRequestParams::from_der(&der.as_slice().into());
        assert!(forged.is_err());
    }

    use rustls::pki_types::pem::PemObject;
}
