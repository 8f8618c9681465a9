//! A private certificate authority, made by the `openssl` command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which certificate a server shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ServerCertificate {
    /// For `localhost` and 127.0.0.1.
    Good,
    /// Good until some years ago.
    Expired,
    /// For `elsewhere.invalid`.
    WrongHost,
}

/// Files in PEM; a key lies beside its certificate.
#[derive(Clone)]
pub struct Certificates {
    dir: PathBuf,
}

/// Validity by dates and not by a number of days: only so can a certificate be born expired
/// with every version of openssl.
const CONFIG: &str = "\
[ca]
default_ca = tests
[tests]
new_certs_dir = .
database = index.txt
serial = serial
default_md = sha256
unique_subject = no
policy = policy
[policy]
commonName = supplied
[req]
distinguished_name = name
prompt = no
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[here]
subjectAltName = DNS:localhost, IP:127.0.0.1
[elsewhere]
subjectAltName = DNS:elsewhere.invalid
[client]
extendedKeyUsage = clientAuth
";

const NOW: (&str, &str) = ("20200101000000Z", "20991231235959Z");
const PAST: (&str, &str) = ("20200101000000Z", "20210101000000Z");

impl Certificates {
    pub fn make(dir: &Path) -> Certificates {
        let dir = dir.join("tls");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("openssl.cnf"), CONFIG).unwrap();
        fs::write(dir.join("index.txt"), "").unwrap();
        fs::write(dir.join("serial"), "01\n").unwrap();
        let made = Certificates { dir };
        made.issue("ca", "Test authority", "authority", NOW);
        made.issue("good", "localhost", "here", NOW);
        made.issue("expired", "localhost", "here", PAST);
        made.issue("wrong-host", "elsewhere.invalid", "elsewhere", NOW);
        made.issue("client", "client", "client", NOW);
        made
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub fn client(&self) -> (PathBuf, PathBuf) {
        self.pair("client")
    }

    pub fn server(&self, which: ServerCertificate) -> (PathBuf, PathBuf) {
        self.pair(match which {
            ServerCertificate::Good => "good",
            ServerCertificate::Expired => "expired",
            ServerCertificate::WrongHost => "wrong-host",
        })
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        (self.dir.join(format!("{name}.crt")), self.dir.join(format!("{name}.key")))
    }

    fn issue(&self, name: &str, subject: &str, extensions: &str, (start, end): (&str, &str)) {
        let [key, request, certificate] =
            ["key", "csr", "crt"].map(|suffix| format!("{name}.{suffix}"));
        let subject = format!("/CN={subject}");
        self.openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        #[rustfmt::skip]
        self.openssl(&[
            "req", "-new", "-config", "openssl.cnf", "-key", &key, "-subj", &subject,
            "-out", &request,
        ]);
        #[rustfmt::skip]
        let mut sign = vec![
            "ca", "-batch", "-notext", "-config", "openssl.cnf", "-in", &request,
            "-out", &certificate, "-extensions", extensions, "-startdate", start, "-enddate", end,
        ];
        if name == "ca" {
            sign.extend(["-selfsign", "-keyfile", &key]);
        } else {
            sign.extend(["-cert", "ca.crt", "-keyfile", "ca.key"]);
        }
        self.openssl(&sign);
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(&self.dir).output();
        let output = output.expect("the openssl command is installed");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {args:?}: {complaint}");
    }
}
