//! Which file system a path is on. SQLite's log is shared memory, and its locks are the kernel's:
//! neither reaches another machine, so on a network file system two holders would be sure of
//! themselves.

use std::fs::{self, OpenOptions};
use std::io;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// File systems that other machines, or the host of this virtual one, can have mounted too.
const SHARED: &str = "9p acfs afs beegfs ceph cifs coda cvfs exfs fhgfs fuse gfs gfs2 glusterfs \
    gpfs ibrix lustre mmfs ncp ncpfs nfs nfs3 nfs4 ocfs2 orangefs panfs prl_fs pvfs2 smb2 smb3 \
    smbfs snfs vboxsf virtiofs vmhgfs wekafs";

/// What FUSE file systems are known to be local. Most of the others reach over a network, and
/// their drivers can be called anything.
const LOCAL_FUSE: &str = "bindfs cryfs encfs exfat ext2 fuse-overlayfs gocryptfs lxcfs mergerfs \
    ntfs ntfs-3g portal securefs unionfs zfs";

/// The kernel's number of the mount that a path is on; `None` if nothing is there.
pub(super) fn mount_of(path: &Path) -> io::Result<Option<String>> {
    // Opened in this way, it can be closed without dropping the locks on the file.
    let opened = match OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
        opened => opened?,
    };
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    // Where the kernel does not tell, the file could be on another machine.
    let id = id.ok_or_else(|| io::Error::other("/proc tells of no mount"))?;
    Ok(Some(id.trim().to_owned()))
}

/// The type of a mount's file system, if other machines can share that.
pub(super) fn shared_type(mount: &str) -> io::Result<Option<String>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let kind = kind(mount, &String::from_utf8_lossy(&mounts)).map(str::to_owned);
    Ok(kind.filter(|kind| is_shared(kind)))
}

/// The device of a mount's file system, which for some is not that of stat(2).
pub(super) fn device_of(mount: &str) -> io::Result<Option<(u32, u32)>> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    Ok(device(mount, &String::from_utf8_lossy(&mounts)))
}

fn device(mount: &str, mountinfo: &str) -> Option<(u32, u32)> {
    mountinfo.lines().find_map(|line| {
        let mut words = line.split(' ');
        let is_it = words.next() == Some(mount);
        let (major, minor) = words.nth(1)?.split_once(':').filter(|_| is_it)?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// `mountinfo` has lines such as
/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`.
fn kind<'m>(mount: &str, mountinfo: &'m str) -> Option<&'m str> {
    mountinfo.lines().find_map(|line| {
        let (about, file_system) = line.split_once(" - ")?;
        let is_it = about.split(' ').next() == Some(mount);
        file_system.split(' ').next().filter(|_| is_it)
    })
}

fn is_shared(kind: &str) -> bool {
    match kind.strip_prefix("fuse.") {
        Some(driver) => !LOCAL_FUSE.split(' ').any(|local| local == driver),
        None => SHARED.split(' ').any(|shared| shared == kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
60 27 0:50 / /home rw,relatime shared:30 master:2 - nfs4 files:/home rw,vers=4.2,addr=10.0.0.9
61 60 259:1 / /home/local rw,relatime shared:31 - xfs /dev/nvme0n1p1 rw
62 27 0:51 / /mnt/my\\040share rw,nosuid - cifs //server/share rw,vers=3.1.1
63 27 0:52 / /mnt/ssh rw,nosuid,nodev,relatime - fuse.sshfs me@far:/ rw,user_id=0
64 27 0:53 / /mnt/layers rw,nodev - fuse.fuse-overlayfs fuse-overlayfs rw
65 27 0:54 / /mnt/stick rw,nosuid - fuseblk /dev/sdb1 rw,user_id=0
66 27 0:55 / /mnt/host rw,relatime - virtiofs share rw
67 27 0:56 / /mnt/own rw - fuse own rw
not a mount at all
";

    #[test]
    fn network_file_systems_are_told_by_their_types() {
        for (id, kind, is_network) in [
            ("60", Some("nfs4"), true),
            ("61", Some("xfs"), false),
            ("62", Some("cifs"), true),
            ("63", Some("fuse.sshfs"), true),
            ("64", Some("fuse.fuse-overlayfs"), false),
            ("65", Some("fuseblk"), false),
            ("66", Some("virtiofs"), true),
            ("67", Some("fuse"), true),
            ("27", Some("ext4"), false),
            ("6", None, false),
        ] {
            let found = super::kind(id, MOUNTS);
            assert_eq!(found, kind, "{id}");
            assert_eq!(found.is_some_and(is_shared), is_network, "{id}");
        }
    }

    #[test]
    fn a_mount_has_a_device() {
        assert_eq!(device("61", MOUNTS), Some((259, 1)));
        assert_eq!(device("6", MOUNTS), None);
    }

    #[test]
    fn this_machine_tells_what_a_path_is_on() {
        let mount = |path: &str| mount_of(Path::new(path)).unwrap().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(kind(&mount("/proc/self"), &mounts), Some("proc"));
        assert!(mount("/proc/self") == mount("/proc") && mount("/proc") != mount("/"));
        assert!(mount_of(Path::new("/proc/nothing there")).unwrap().is_none());
    }
}
