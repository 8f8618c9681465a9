//! Programs that make cycles of their own, in other languages, in turn with ours.
//!
//! A program gets the name of the lock as its last argument, and the store in LEASEHOLD_URL. For
//! each line with a number it takes the lock and gives it back that many times, and answers with
//! one line: what each of these cycles took, in nanoseconds, with spaces between. It ends at the end
//! of its input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use leasehold::URL_VARIABLE;

use crate::measure::{Loop, Outcome};

/// `NAME=PROGRAM`: what the report calls it, and a command for the shell.
#[derive(Clone)]
pub(crate) struct Also {
    pub(crate) name: String,
    command: String,
}

impl Also {
    pub(crate) fn new(name: &str, command: String) -> Also {
        Also { name: name.to_owned(), command }
    }

    /// What runs it, for the lock of this name.
    pub(crate) fn command(&self, url: &str, lock: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {} \"$1\"", self.command), "sh", lock]);
        command.env(URL_VARIABLE, url);
        command
    }
}

impl FromStr for Also {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Also, Self::Err> {
        match text.split_once('=') {
            Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
                Ok(Also::new(name, command.to_owned()))
            }
            _ => Err("it is a name, =, and a command"),
        }
    }
}

/// One that runs, on the core that this process was on when it was started.
pub(crate) struct Program {
    name: String,
    child: Child,
    // Taken away for the program to end.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(also: &Also, url: &str, lock: &str) -> Outcome<Program> {
        let mut command = also.command(url, lock);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (requests, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or("a program without output")?);
        Ok(Program { name: also.name.clone(), child, requests, answers })
    }

    pub(crate) fn timed(&mut self) -> Loop<'_> {
        Box::new(|cycles, samples| {
            self.ask(cycles)?;
            self.answer(cycles, samples)
        })
    }

    /// The first half of it, so that others can be asked before it has answered.
    pub(crate) fn ask(&mut self, cycles: u32) -> Outcome<()> {
        let asked = self.requests.as_mut().map(|requests| writeln!(requests, "{cycles}"));
        if matches!(asked, Some(Ok(()))) { Ok(()) } else { Err(self.has_ended()) }
    }

    pub(crate) fn answer(&mut self, cycles: u32, samples: &mut Vec<u64>) -> Outcome<()> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(self.has_ended());
        }
        let failed = |what: String| format!("{}: {what}", self.name);
        let before = samples.len();
        for word in line.split_ascii_whitespace() {
            let nanos = word.parse().map_err(|_| failed(format!("{word:?} is no number")))?;
            samples.push(nanos);
        }
        match samples.len() - before {
            count if count == cycles as usize => Ok(()),
            count => Err(failed(format!("{count} numbers for {cycles} cycles")).into()),
        }
    }

    fn has_ended(&self) -> Box<dyn std::error::Error> {
        format!("{}: it has ended", self.name).into()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.requests = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(command: &str, cycles: u32) -> Result<Vec<u64>, String> {
        let also: Also = format!("x={command}").parse()?;
        let mut program = Program::start(&also, "sqlite:nowhere.db", "lock").unwrap();
        let mut samples = Vec::new();
        let done = program.timed()(cycles, &mut samples);
        done.map(|()| samples).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_answers_with_a_number_for_each_cycle() {
        let answers = |line: &str| block(&format!("sh -c 'read n; echo {line}; cat >&2'"), 3);
        assert_eq!(answers("7 8 9").unwrap(), [7, 8, 9]);
        assert_eq!(answers("7 8").unwrap_err(), "x: 2 numbers for 3 cycles");
        assert_eq!(answers("7 -8 9").unwrap_err(), "x: \"-8\" is no number");
        assert_eq!(block("sh -c 'read n; exit 3'", 1).unwrap_err(), "x: it has ended");
        for wrong in ["c", "=./cycle", "c= "] {
            assert!(wrong.parse::<Also>().is_err(), "{wrong}");
        }
    }
}
