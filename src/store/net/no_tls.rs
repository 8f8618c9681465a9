//! What stands in for TLS in a library that was built without it: no URL asks for any then.

use crate::config::{Address, TlsConfig};
use crate::error::Error;

/// There is none.
pub(in crate::store) enum Tls {}

impl Tls {
    pub(in crate::store) fn prepare(
        _files: Option<&TlsConfig>,
        _addresses: &[Address],
    ) -> Result<Option<Tls>, Error> {
        Ok(None)
    }

    #[cfg(feature = "etcd")]
    pub(in crate::store) fn speaking(self, _protocol: &[u8]) -> Tls {
        match self {}
    }
}
