//! Programs that make cycles of their own, in other languages, in turn with ours.
//!
//! Such a program gets the name of the lock as its last argument, and the store in the environment
//! variable LEASEHOLD_URL (what stands in a command line, everybody can read). For each line with
//! a number it takes the lock and gives it back so many times, and answers with one line: what
//! each of these cycles took, in nanoseconds, with spaces between. It ends at the end of its input.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use leasehold::URL_VARIABLE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::measure::{Timed, interleave};
use super::watch::Watch;
use crate::exit::Failure;

/// How long a program may take to start, or to answer.
const SILENCE: Duration = Duration::from_secs(30);
/// How long it may take to end.
const END: Duration = Duration::from_secs(2);
/// How often signals are looked at while a program runs.
const PAUSE: Duration = Duration::from_millis(100);

/// `NAME=PROGRAM`: what the report calls it, and a command for the shell.
#[derive(Clone, Debug)]
pub(super) struct Also {
    name: String,
    command: String,
}

impl FromStr for Also {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Also, Self::Err> {
        let (name, command) = text.split_once('=').ok_or("there is no = in it")?;
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric()) {
            return Err("the name is not made of letters and digits");
        }
        if command.trim().is_empty() {
            return Err("there is no program in it");
        }
        Ok(Also { name: name.to_owned(), command: command.to_owned() })
    }
}

/// One that runs, on the core that this process was on when it was started.
pub(super) struct Program {
    name: String,
    child: Child,
    // Taken away for the program to end.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
}

impl Program {
    pub(super) fn start_all(also: &[Also], url: &str, lock: &str) -> Result<Vec<Program>, Failure> {
        also.iter().map(|also| Program::start(also, url, lock)).collect()
    }

    fn start(also: &Also, url: &str, lock: &str) -> Result<Program, Failure> {
        let what = || format!("{}: it cannot be started", also.name);
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {} \"$1\"", also.command), "sh", lock])
            .env(URL_VARIABLE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process, which ends the others.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::system(&what(), error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (requests @ Some(_), Some(answers)) => {
                Ok(Program { name: also.name.clone(), child, requests, answers })
            }
            _ => Err(Failure::unavailable(what())),
        }
    }

    /// The next line that it writes.
    fn answer(&mut self, watch: &Watch) -> Result<String, Failure> {
        let asked = Instant::now();
        let mut line = Vec::new();
        let mut buffer = [0; 4096];
        while line.last() != Some(&b'\n') {
            watch.check()?;
            if asked.elapsed() > SILENCE {
                return Err(self.failure(&format!("no answer in {} s", SILENCE.as_secs())));
            }
            let mut answers = [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
            let pause = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
            if poll(&mut answers, pause)? == 0 {
                continue;
            }
            match self.answers.read(&mut buffer)? {
                0 => return Err(self.ended()),
                read => line.extend_from_slice(&buffer[..read]),
            }
        }
        String::from_utf8(line).map_err(|_| self.failure("its answer is not text"))
    }

    fn failure(&self, what: &str) -> Failure {
        Failure::unavailable(format!("{}: {what}", self.name))
    }

    fn ended(&mut self) -> Failure {
        match self.wait() {
            Some(status) => self.failure(&format!("it has ended: {status}")),
            None => self.failure("it has closed its output"),
        }
    }

    /// Waits for its end, as long as that may take.
    fn wait(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        let asked = Instant::now();
        while asked.elapsed() < END {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }
}

/// Cycles of programs, by their names.
pub(super) type Named = Vec<(String, f64)>;

/// Times loops of ours and the programs in turn: the medians of ours, and those of the programs.
pub(super) fn interleave_with<const N: usize>(
    programs: &mut [Program],
    own: [&mut dyn Timed; N],
    time: Duration,
    watch: &Watch,
) -> Result<([f64; N], Named), Failure> {
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    let mut loops: Vec<&mut dyn Timed> = Vec::with_capacity(N + programs.len());
    for timed in own {
        loops.push(timed);
    }
    for program in programs {
        loops.push(program);
    }
    let medians = interleave(&mut loops, time, watch)?;
    let others = names.into_iter().zip(medians[N..].iter().copied()).collect();
    Ok((std::array::from_fn(|at| medians[at]), others))
}

impl Timed for Program {
    fn block(&mut self, cycles: u32, samples: &mut Vec<u32>, watch: &Watch) -> Result<(), Failure> {
        let asked = match &mut self.requests {
            Some(requests) => writeln!(requests, "{cycles}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match asked {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(self.ended()),
            asked => asked?,
        }
        let answer = self.answer(watch)?;
        let before = samples.len();
        for word in answer.split_ascii_whitespace() {
            let nanos: u64 = word
                .parse()
                .map_err(|_| self.failure(&format!("it answers {:?}, no number", word)))?;
            samples.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        }
        match samples.len() - before {
            count if count == cycles as usize => Ok(()),
            count => Err(self.failure(&format!("it answers {count} numbers for {cycles} cycles"))),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.wait().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_name_and_a_command() {
        let also: Also = "c=/opt/a=b --fast".parse().unwrap();
        assert_eq!((also.name.as_str(), also.command.as_str()), ("c", "/opt/a=b --fast"));
        for wrong in ["c", "=./cycle", "c=", "c= ", "two words=./cycle"] {
            assert!(wrong.parse::<Also>().is_err(), "{wrong}");
        }
    }

    fn block(command: &str, cycles: u32) -> Result<Vec<u32>, String> {
        let also = Also { name: "x".to_owned(), command: command.to_owned() };
        let mut program = Program::start(&also, "sqlite:nowhere.db", "lock").unwrap();
        let mut samples = Vec::new();
        let done = program.block(cycles, &mut samples, &Watch::blind());
        done.map(|()| samples).map_err(|failure| failure.message)
    }

    #[test]
    fn a_program_answers_with_a_number_for_each_cycle() {
        let answers = |line: &str| block(&format!("sh -c 'read n; echo {line}; cat >&2'"), 3);
        assert_eq!(answers("7 8 99999999999").unwrap(), [7, 8, u32::MAX]);
        assert_eq!(answers("7 8").unwrap_err(), "x: it answers 2 numbers for 3 cycles");
        assert!(answers("7 -8 9").unwrap_err().contains("\"-8\""));
        assert_eq!(block("sh -c 'exit 3'", 1).unwrap_err(), "x: it has ended: exit status: 3");
        assert!(block("/no/such/program 2>&-", 1).unwrap_err().ends_with("127"));
    }
}
