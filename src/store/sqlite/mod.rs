//! stub
use super::*;
pub(crate) struct SqliteStore;
impl SqliteStore {
    pub(crate) fn open(_: &std::path::Path, _: &Config) -> Result<SqliteStore, Error> {
        todo!()
    }
}
impl Store for SqliteStore {
    fn run(&self, _: Lane, _: &[Request<'_>], _: Deadline) -> Vec<Outcome> {
        todo!()
    }
    fn look(&self, _: &[u8], _: Deadline) -> Result<Look, Error> {
        todo!()
    }
    fn ping(&self, _: Deadline) -> Result<(), Error> {
        todo!()
    }
    fn abilities(&self) -> Abilities {
        todo!()
    }
}
