//! Which file system a path is on. SQLite's log is shared memory, and its locks are the kernel's:
//! neither reaches another machine, so on a network file system two holders would be sure of
//! themselves.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that other machines, or the host of this virtual one, can have mounted too.
const SHARED: &[&str] = &[
    "9p",
    "acfs",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "cvfs",
    "exfs",
    "fhgfs",
    "gfs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "ibrix",
    "lustre",
    "mmfs",
    "ncpfs",
    "ncp",
    "nfs",
    "nfs3",
    "nfs4",
    "ocfs2",
    "orangefs",
    "panfs",
    "prl_fs",
    "pvfs2",
    "smb2",
    "smb3",
    "smbfs",
    "snfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
    "wekafs",
];

/// What FUSE file systems are known to be local. Most of the others reach over a network, and
/// their drivers can be called anything.
const LOCAL_FUSE: &[&str] = &[
    "bindfs",
    "cryfs",
    "encfs",
    "exfat",
    "ext2",
    "fuse-overlayfs",
    "gocryptfs",
    "lxcfs",
    "mergerfs",
    "ntfs",
    "ntfs-3g",
    "portal",
    "securefs",
    "unionfs",
    "zfs",
];

/// What is mounted where.
pub(super) struct Mount {
    pub(super) point: PathBuf,
    kind: String,
}

impl Mount {
    /// The type of the file system, if other machines can share it.
    pub(super) fn shared_type(&self) -> Option<&str> {
        Some(&*self.kind).filter(|kind| is_shared(kind))
    }
}

/// The mount that a path is on. `mountinfo` is the content of `/proc/self/mountinfo`, the path
/// absolute and without symbolic links.
pub(super) fn find(mountinfo: &[u8], path: &Path) -> Option<Mount> {
    let mut deepest: Option<(usize, Mount)> = None;
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let Some(mount) = parse(line) else { continue };
        if !path.starts_with(&mount.point) {
            continue;
        }
        let depth = mount.point.components().count();
        // Of two on the same point the later one covers the earlier.
        if deepest.as_ref().is_none_or(|(known, _)| depth >= *known) {
            deepest = Some((depth, mount));
        }
    }
    deepest.map(|(_, mount)| mount)
}

fn is_shared(kind: &str) -> bool {
    match kind.strip_prefix("fuse.") {
        Some(driver) => !LOCAL_FUSE.contains(&driver),
        None => kind == "fuse" || SHARED.contains(&kind),
    }
}

/// One line:
/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let point = fields.get(4)?;
    // Between the options and the type stand any number of optional fields, and then a dash.
    let dash = 6 + fields.get(6..)?.iter().position(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.get(dash + 1)?).into_owned();
    Some(Mount { point: PathBuf::from(OsString::from_vec(unescape(point))), kind })
}

/// Blanks, tabs, newlines and backslashes are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
60 27 0:50 / /home rw,relatime shared:30 master:2 - nfs4 files:/home rw,vers=4.2,addr=10.0.0.9
61 60 259:1 / /home/local rw,relatime shared:31 - xfs /dev/nvme0n1p1 rw
62 27 0:51 / /mnt/my\\040share rw,nosuid - cifs //server/share rw,vers=3.1.1
63 27 0:52 / /mnt/ssh rw,nosuid,nodev,relatime - fuse.sshfs me@far:/ rw,user_id=0
64 27 0:53 / /mnt/layers rw,nodev - fuse.fuse-overlayfs fuse-overlayfs rw
65 27 0:54 / /mnt/stick rw,nosuid - fuseblk /dev/sdb1 rw,user_id=0
66 27 0:55 / /mnt/host rw,relatime - virtiofs share rw
67 27 0:56 / /mnt/twice rw - nfs server:/x rw
68 67 0:57 / /mnt/twice rw - tmpfs tmpfs rw
not a mount at all
";

    #[test]
    fn network_file_systems_are_told_by_the_deepest_mount_point() {
        for (path, shared) in [
            ("/home/ann/locks.db", Some("nfs4")),
            ("/home/local/locks.db", None),
            ("/homework/locks.db", None),
            ("/mnt/my share/a/locks.db", Some("cifs")),
            ("/mnt/ssh/locks.db", Some("fuse.sshfs")),
            ("/mnt/layers/locks.db", None),
            ("/mnt/stick/locks.db", None),
            ("/mnt/host/locks.db", Some("virtiofs")),
            ("/mnt/twice/locks.db", None),
            ("/var/lib/locks.db", None),
        ] {
            let mount = find(MOUNTS, Path::new(path)).unwrap();
            assert_eq!(mount.shared_type(), shared, "{path}");
        }
    }

    #[test]
    fn this_machine_has_a_root_that_can_be_read() {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap();
        assert!(mounts.split(|byte| *byte == b'\n').filter_map(parse).count() > 0);
    }
}
