//! A job that one node of many runs, once per interval.
//!
//! Every node has the same timetable and tries the same lock. The node that acquires it runs the job
//! and leaves the lock held until the interval is over, even if the node stops before that.
//!
//! `cargo run --features sqlite --example one_node` starts its nodes as processes of their own. It
//! uses the store that `LEASEHOLD_URL` names, or else the embedded one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Client;

const NODES: usize = 4;
const INTERVAL: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(job) => node(&job),
        None => cluster(),
    }
}

/// One node. Its timetable comes by standard input here: one line each time the job is due.
fn node(job: &str) -> Result<(), Box<dyn Error>> {
    let lock = Client::from_env()?.lock(job);
    for due in std::io::stdin().lines() {
        due?;
        match lock.try_acquire()? {
            Some(lease) => {
                // Here the job would run, renewed in the background for as long as it takes.
                let fence = lease.fence();
                lease.let_expire_in(INTERVAL)?;
                println!("ran {fence}");
            }
            None => println!("left it to another node"),
        }
    }
    Ok(())
}

/// A node as the one who started it sees it.
struct Node {
    process: Child,
    timetable: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Node {
    fn start(job: &str) -> Result<Node, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(job)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let timetable = process.stdin.take().ok_or("no standard input")?;
        let said = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(Node { process, timetable, said })
    }
}

fn cluster() -> Result<(), Box<dyn Error>> {
    let job = format!("report:{:x}", RandomState::new().hash_one(0));
    let mut nodes = (0..NODES).map(|_| Node::start(&job)).collect::<Result<Vec<_>, _>>()?;
    println!("{NODES} nodes run. The job is {job}, once per {INTERVAL:?}.");

    let first = everywhere(&mut nodes, "The job is due on every node.")?;
    assert_eq!(first.len(), 1, "one node runs the job");
    let again = everywhere(&mut nodes, "It is due again, within the interval.")?;
    assert_eq!(again.len(), 0, "it was run already");

    wait_until_free(&job)?;
    let second = everywhere(&mut nodes, "The interval is over, and the job is due again.")?;
    assert_eq!(second.len(), 1, "one node runs the job in the second interval");
    assert!(second > first, "the fence has grown");

    for mut node in nodes {
        drop(node.timetable);
        assert!(node.process.wait()?.success());
    }
    println!("Twice due in two intervals, {NODES} nodes, two runs.");
    Ok(())
}

/// Tells all nodes at once that the job is due; gives the fences of those that ran it.
fn everywhere(nodes: &mut [Node], what: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    println!("{what}");
    for node in nodes.iter_mut() {
        writeln!(node.timetable, "due")?;
    }
    let mut fences = Vec::new();
    for (number, node) in nodes.iter_mut().enumerate() {
        let mut line = String::new();
        node.said.read_line(&mut line)?;
        println!("  node {number}: {}", line.trim_end());
        if let Some(fence) = line.trim_end().strip_prefix("ran ") {
            fences.push(fence.parse()?);
        } else if line.is_empty() {
            return Err("a node has ended".into());
        }
    }
    Ok(fences)
}

fn wait_until_free(job: &str) -> Result<(), Box<dyn Error>> {
    let lock = Client::from_env()?.lock(job);
    let start = Instant::now();
    while lock.inspect()?.holder.is_some() {
        if start.elapsed() > INTERVAL * 5 {
            return Err("the interval does not end".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
