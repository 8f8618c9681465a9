//! What a login is bound to: the certificate that a server showed (tls-server-end-point, RFC 5929).

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The hash of a certificate, by the function with which it was signed; `None` where that is none of
/// the usual ones.
pub(super) fn hash(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01";
    const ECDSA: &[u8] = b"\x2a\x86\x48\xce\x3d\x04";
    // In it what was signed, by which algorithm, and the signature.
    let (_, all, _) = next(certificate)?;
    let (_, _, rest) = next(all)?;
    let (_, algorithm, _) = next(rest)?;
    let (_, name, _) = next(algorithm)?;
    let kind = name.strip_prefix(RSA).or_else(|| name.strip_prefix(ECDSA))?;
    Some(match kind {
        // MD5 and SHA-1 are too weak, and SHA-256 stands in for them.
        [4 | 5 | 11 | 1] | [3, 2] => Sha256::digest(certificate).to_vec(),
        [12] | [3, 3] => Sha384::digest(certificate).to_vec(),
        [13] | [3, 4] => Sha512::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// The first value of some in DER: its kind, what is in it, and what is behind it.
fn next(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[kind, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    Some((kind, inside, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let name = [&[6, algorithm.len() as u8], algorithm].concat();
        let signed = [&[0x30, 0x81, 200][..], &[7; 200]].concat();
        let all = [&signed[..], &[0x30, name.len() as u8], &name, &[3, 1, 0]].concat();
        [&[0x30, 0x82, 0, all.len() as u8][..], &all].concat()
    }

    #[test]
    fn a_certificate_is_hashed_as_it_was_signed() {
        for (algorithm, length) in [
            (&b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"[..], Some(32)),
            (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", Some(32)),
            (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", Some(48)),
            (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", Some(64)),
            (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", Some(32)),
            (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", Some(48)),
            (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", Some(64)),
            // Of Ed25519 nobody has said which.
            (b"\x2b\x65\x70", None),
        ] {
            let hashed = hash(&certificate(algorithm));
            assert_eq!(hashed.map(|hash| hash.len()), length, "{algorithm:x?}");
        }
        let good = certificate(b"\x2a\x86\x48\xce\x3d\x04\x03\x02");
        // The last three bytes are the signature, which is not looked at.
        assert!((0..good.len()).all(|end| hash(&good[..end]).is_none()));
    }
}
