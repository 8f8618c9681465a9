//! Writes the header from the sources of the C interface: cbindgen writes each declaration down, with
//! its comment; here they are put into an order that can be read.

use std::error::Error;
use std::fs;
use std::path::Path;

const SOURCES: &str = "src/capi";

/// The parts of the header after its opening, and which names belong to each: by what follows
/// `leasehold_`, in lower case. The first part that fits gets a name.
const PARTS: &[(&str, &[&str])] = &[
    ("Status", &["status", "ok", "busy", "timeout", "interrupted", "lost", "unknown", "err_"]),
    ("Errors", &["error"]),
    ("Setting up a client", &["config", "credentials"]),
    ("Clients", &["client", "counter", "metrics"]),
    ("Locks", &["lock", "fact", "turn", "wait_mode", "interrupt_fn", "forever"]),
    ("Many waits at once", &["waits"]),
    ("Leases", &["lease"]),
    ("Leader election", &["election", "term"]),
    ("Events", &["events", "event", "loss"]),
    ("The log", &["log"]),
    ("A store for tests", &["testing"]),
    ("Durations, versions, handles", &["duration", "version", "abi_version", "handle"]),
];

/// A declaration with its comment.
struct Item {
    name: String,
    text: String,
    kind: Kind,
}

/// In the order in which they stand in a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Handle,
    Type,
    Constant,
    Function,
}

/// Writes the header beside the other output of the build script.
pub(crate) fn write() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed={SOURCES}");
    let place = Path::new(&std::env::var("OUT_DIR")?).join("leasehold.h");
    Ok(fs::write(place, generate()?)?)
}

/// What the sources say.
fn generate() -> Result<String, Box<dyn Error>> {
    let items = items(&written_down()?);
    let opening = fs::read_to_string(Path::new(SOURCES).join("header/opening.h"))?;
    let mut header = opening.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    // Handles first: the functions of each part use those of others.
    header += &part("What a program holds", items.iter().filter(|item| item.kind == Kind::Handle));
    header += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
    if let Some(lost) = items.iter().find(|item| home(&item.name).is_none()) {
        return Err(format!("{} belongs to no part of the header", lost.name).into());
    }
    for (title, _) in PARTS {
        let mut here: Vec<_> = items
            .iter()
            .filter(|item| item.kind != Kind::Handle && home(&item.name) == Some(*title))
            .collect();
        // Stable: what is of one kind keeps the order of the sources.
        here.sort_by_key(|item| item.kind);
        header += &part(title, here.into_iter());
    }
    Ok(header + "#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
}

fn part<'a>(title: &str, items: impl Iterator<Item = &'a Item>) -> String {
    let mut part = format!("/* ---- {title} {} */\n\n", "-".repeat(88 - title.len()));
    let mut before = None;
    for item in items {
        // Constants stand together.
        if before.is_some_and(|kind| kind != Kind::Constant || kind != item.kind) {
            part += "\n";
        }
        part += &item.text;
        part += "\n";
        before = Some(item.kind);
    }
    part + "\n"
}

/// The part that a name belongs to.
fn home(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let name = name.strip_prefix("leasehold_")?;
    let fits = |(_, names): &&(&str, &[&str])| names.iter().any(|start| name.starts_with(start));
    PARTS.iter().find(fits).map(|(title, _)| *title)
}

fn written_down() -> Result<String, Box<dyn Error>> {
    let config = cbindgen::Config::from_file(Path::new(SOURCES).join("header/cbindgen.toml"))?;
    // By the file: for a crate, cbindgen would ask cargo for its dependencies, perhaps on the network.
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = builder.with_src(Path::new(SOURCES).join("mod.rs"));
    let mut written = Vec::new();
    builder.generate()?.write(&mut written);
    // What sets code apart in Rust is no word of C's.
    let lines = str::from_utf8(&written)?.lines().filter(|line| !line.starts_with(" * ```"));
    Ok(lines.fold(String::new(), |text, line| text + line + "\n"))
}

/// The declarations that cbindgen has written.
fn items(header: &str) -> Vec<Item> {
    header
        .split("\n\n")
        .filter_map(|text| {
            let text = text.trim();
            let declaration = text.rsplit_once("*/\n").map_or(text, |(_, declaration)| declaration);
            let (kind, name) = declared(declaration)?;
            // Other public constants of the crate are none of C's business.
            name.to_lowercase().starts_with("leasehold_").then(|| Item {
                name: name.to_owned(),
                text: shorter(&parenthesized(text)),
                kind,
            })
        })
        .collect()
}

fn declared(declaration: &str) -> Option<(Kind, &str)> {
    let word = |text: &'_ str| -> usize {
        text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len())
    };
    if let Some(rest) = declaration.strip_prefix("#define ") {
        return Some((Kind::Constant, &rest[..word(rest)]));
    }
    let named = |rest: &&str| !rest.starts_with('{');
    if let Some(rest) = declaration.strip_prefix("typedef struct ").filter(named) {
        return Some((Kind::Handle, &rest[..word(rest)]));
    }
    if let Some(rest) = declaration.strip_prefix("typedef ") {
        let start =
            rest.find("(*").map_or_else(|| rest.rfind(' ').map(|at| at + 1), |at| Some(at + 2))?;
        return Some((Kind::Type, &rest[start..start + word(&rest[start..])]));
    }
    let end = declaration.find('(').filter(|_| declaration.ends_with(");"))?;
    let start = declaration[..end].rfind([' ', '*'])? + 1;
    Some((Kind::Function, &declaration[start..end]))
}

/// A comment of one line, on one line.
fn shorter(text: &str) -> String {
    let inner = text.strip_prefix("/**\n * ").and_then(|rest| rest.split_once("\n */\n"));
    match inner.filter(|(comment, _)| !comment.contains('\n') && comment.len() < 94) {
        Some((comment, declaration)) => format!("/** {comment} */\n{declaration}"),
        None => text.to_owned(),
    }
}

/// A negative constant in parentheses, as C people have it.
fn parenthesized(text: &str) -> String {
    match text.rsplit_once(" -") {
        Some((define, digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            format!("{define} (-{digits})")
        }
        _ => text.to_owned(),
    }
}
