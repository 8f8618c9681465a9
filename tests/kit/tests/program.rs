//! The program `kit` as scripts start it. Cargo builds it for this test.

use std::process::Command;

fn kit(words: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_kit")).args(words).output().unwrap()
}

#[test]
fn a_command_is_run_with_a_store_and_its_status_is_the_programs() {
    let ended = kit(&["redis", "--", "sh", "-c", "echo $LEASEHOLD_URL; exit 7"]);
    assert_eq!(ended.status.code(), Some(7));
    assert!(ended.stdout.starts_with(b"redis://127.0.0.1:"), "{ended:?}");
    let ended = kit(&["nothing"]);
    assert_eq!(ended.status.code(), Some(64));
    assert!(ended.stderr.starts_with(b"usage: kit "), "{ended:?}");
}
