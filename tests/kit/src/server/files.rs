//! What a server keeps when it is killed: nothing, what it saved, or what it once had saved.

use std::fs;
use std::path::PathBuf;

use super::Server;

/// A copy of what a server had saved at some time.
pub struct KeptFile(Vec<u8>);

impl Server {
    pub fn save(&self) {
        self.cmd(&["SAVE"]);
    }

    pub fn restart_with_data(&mut self) {
        self.save();
        self.restart_with_saved();
    }

    /// With the data of the last `save`, as after a crash: what came later is lost.
    pub fn restart_with_saved(&mut self) {
        self.kill();
        self.start_again();
    }

    pub fn restart_empty(&mut self) {
        self.kill();
        self.start_again_empty();
    }

    /// After `kill`.
    pub fn start_again_empty(&mut self) {
        // Absent unless somebody saved.
        let _ = fs::remove_file(self.file());
        self.start_again();
    }

    /// Saves, and keeps what was saved for `restart_with`.
    pub fn keep_file(&self) -> KeptFile {
        self.save();
        KeptFile(fs::read(self.file()).unwrap())
    }

    /// As from a backup: with a file that may be older than the last `save`.
    pub fn restart_with(&mut self, file: &KeptFile) {
        self.kill();
        self.start_again_with(file);
    }

    /// After `kill`.
    pub fn start_again_with(&mut self, file: &KeptFile) {
        fs::write(self.file(), &file.0).unwrap();
        self.start_again();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("dump.rdb")
    }
}
