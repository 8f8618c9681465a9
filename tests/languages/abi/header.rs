//! Writes `include/leasehold.h` from the sources of the C interface: cbindgen writes each
//! declaration down, with its comment; here they are put into an order that can be read.

use std::path::{Path, PathBuf};

/// The parts of the header after its opening, and which names belong to each: by what follows
/// `leasehold_`, in lower case. The first part that fits gets a name.
const PARTS: &[(&str, &[&str])] = &[
    ("Status", &["status", "ok", "busy", "timeout", "interrupted", "not_held", "unknown", "err_"]),
    ("Errors", &["error"]),
    ("Setting up a client", &["config"]),
    ("Clients", &["client", "counter"]),
    ("Locks", &["lock", "wait_mode", "interrupt_fn", "forever"]),
    ("Leases", &["lease"]),
    ("Events", &["events", "event", "loss"]),
    ("The log", &["log"]),
    ("Durations, versions, handles", &["duration", "version", "abi_version", "handle"]),
];

/// A declaration with its comment.
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) text: String,
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

pub(crate) fn path() -> PathBuf {
    root().join("include/leasehold.h")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the sources say now.
pub(crate) fn generate() -> String {
    let items = items(&written_down());
    let opening = std::fs::read_to_string(root().join("src/capi/header/opening.h")).unwrap();
    let mut header = opening.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    // Handles first: the functions of each part use those of others.
    header += &part("What a program holds", items.iter().filter(|item| item.kind == Kind::Handle));
    header += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
    for (title, _) in PARTS {
        let mut here: Vec<_> = items
            .iter()
            .filter(|item| item.kind != Kind::Handle && home(&item.name) == *title)
            .collect();
        // Stable: what is of one kind keeps the order of the sources.
        here.sort_by_key(|item| item.kind);
        header += &part(title, here.into_iter());
    }
    header + "#ifdef __cplusplus\n}\n#endif\n\n#endif\n"
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
fn home(name: &str) -> &'static str {
    let name = name.to_lowercase();
    let name = name.strip_prefix("leasehold_").unwrap();
    let fits = |(_, names): &&(&str, &[&str])| names.iter().any(|start| name.starts_with(start));
    PARTS.iter().find(fits).unwrap_or_else(|| panic!("{name} belongs to no part")).0
}

fn written_down() -> String {
    let config = cbindgen::Config::from_file(root().join("src/capi/header/cbindgen.toml")).unwrap();
    let mut written = Vec::new();
    let bindings = cbindgen::Builder::new().with_crate(root()).with_config(config).generate();
    bindings.unwrap().write(&mut written);
    // What sets code apart in Rust is no word of C's.
    let written = String::from_utf8(written).unwrap();
    written
        .lines()
        .filter(|line| !line.starts_with(" * ```"))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// The declarations of a header of ours.
pub(crate) fn items(header: &str) -> Vec<Item> {
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
    if let Some(rest) = declaration.strip_prefix("typedef struct ") {
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

impl Item {
    pub(crate) fn is_function(&self) -> bool {
        self.kind == Kind::Function
    }

    pub(crate) fn comment(&self) -> &str {
        self.text.rsplit_once("*/\n").map_or("", |(comment, _)| comment)
    }
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
