//! What the shells complete with the files that packages have: each reads its own, and is asked.

use std::process::{Command, Stdio};

use super::{LIMIT, code, leasehold};

/// The words of a shell that asks itself, with the folder of the files as their last argument.
const SHELLS: [(&str, &[&str]); 3] = [
    (
        "bash",
        &[
            "-c",
            "source $0/leasehold.bash; COMP_WORDS=(leasehold run --once); COMP_CWORD=2
             _leasehold leasehold --once run; echo ${COMPREPLY[@]}",
        ],
    ),
    // A terminal, in which the key is pressed.
    (
        "zsh",
        &[
            "-f",
            "-c",
            "zmodload zsh/zpty; zpty shell zsh -f -i
             zpty -w shell \"fpath=($0 \\$fpath); autoload -Uz compinit; compinit -u -d $0/dump\"
             zpty -w -n shell $'leasehold run --once\\t'
             zpty -r shell said '*--once-per*' && print -r -- $said",
        ],
    ),
    (
        "fish",
        &["--no-config", "-c", "source $argv/leasehold.fish; complete -C 'leasehold run --once'"],
    ),
];

/// Whether it is here, as tests/run has it.
fn is_here(shell: &str) -> bool {
    let asked = Command::new(shell).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success()) || {
        assert!(std::env::var_os("KIT_SHELLS").is_none(), "{shell} is missing");
        eprintln!("{shell} is not installed: not judged");
        false
    }
}

#[test]
fn shells_complete_an_option() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(code(leasehold("", ["pages".as_ref(), folder.path().as_os_str()])), 0);
    for (shell, words) in SHELLS.iter().filter(|(shell, _)| is_here(shell)) {
        // One that completes nothing would wait for ever.
        let mut asked = Command::new("timeout");
        asked.arg(LIMIT.as_secs().to_string()).arg(shell).args(*words).arg(folder.path());
        let said = asked.env("HOME", folder.path()).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(text.contains("--once-per"), "{shell}: {said:?}");
    }
}
