//! Which store it is where the program names none: the environment says so, or else the machine's
//! file. A private file of this user is the last choice, and is said in the log: programs that do not
//! know of each other's locks run side by side without any other sign.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::nearest::nearest;
use super::{Config, bad, url};
use crate::error::Error;
use crate::said::say;

/// The environment variable that names the store where no URL is given.
pub const URL_VARIABLE: &str = "LEASEHOLD_URL";
const REQUIRE_VARIABLE: &str = "LEASEHOLD_REQUIRE_URL";
const FILE_VARIABLE: &str = "LEASEHOLD_CONF";
/// What the command tells the one that it runs, and where Python finds the library.
const OTHERS: [&str; 3] = ["LEASEHOLD_NAME", "LEASEHOLD_FENCE", "LEASEHOLD_LIBRARY"];
const FILE: &str = "/etc/leasehold.conf";

impl Config {
    /// Does as the shell does. The URL is that of the variable `LEASEHOLD_URL`, or else that of
    /// the file `/etc/leasehold.conf` (another one, if `LEASEHOLD_CONF` names it), or else
    /// `sqlite:`, the embedded store (feature `sqlite`): the locks are then for this user on this
    /// machine only, which the log says at `warn`. `docs/reference/urls.md` has the file.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument): the URL cannot be read; a variable
    /// is empty, or seems to be a misspelt one of these; the file cannot be read, or says something
    /// else; `LEASEHOLD_REQUIRE_URL=1`, or `require_url = yes` in the file, and there is no URL; or
    /// there is no place for an embedded store, or no feature `sqlite`.
    pub fn from_env() -> Result<Config, Error> {
        let (config, warnings) = chosen(std::env::vars_os(), Path::new(FILE))?;
        warnings.iter().for_each(|warning| say!(Warn, "config", why = &**warning));
        Ok(config)
    }
}

/// What the environment or the file says. Each comes with the place where it stands.
#[derive(Default)]
struct Settings {
    url: Option<(String, String)>,
    require: Option<(bool, String)>,
}

fn chosen(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    file: &Path,
) -> Result<(Config, Vec<String>), Error> {
    let (mut set, mut named, mut warnings) = (Settings::default(), None, Vec::new());
    for (name, value) in variables {
        let name = name.to_string_lossy();
        match &*name {
            URL_VARIABLE => set.url = Some((text(&name, value)?, name.into_owned())),
            REQUIRE_VARIABLE => {
                set.require = Some((switch(&name, &text(&name, value)?)?, name.into_owned()));
            }
            FILE_VARIABLE => named = Some(text(&name, value)?),
            other => warnings.extend(strange(other, &value)?),
        }
    }
    if set.url.is_none() {
        let path = named.as_deref().map_or(file, Path::new);
        let place = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(lines) => {
                let there = read(&lines, &place)?;
                set = Settings { url: there.url, require: set.require.or(there.require) };
            }
            // A link that leads nowhere is a file that is missing, and not a machine without one.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && named.is_none()
                    && path.symlink_metadata().is_err() => {}
            Err(error) => return Err(bad(format!("{place}: {error}"))),
        }
    }
    if let Some((url, place)) = set.url {
        return Ok((Config::from_url(&url).map_err(|error| error.at(place))?, warnings));
    }
    if let Some((true, place)) = set.require {
        return Err(bad(format!("{place} asks for a URL, and {URL_VARIABLE} is not set")));
    }
    if !cfg!(feature = "sqlite") {
        return Err(bad(format!(
            "no store is named: set {URL_VARIABLE}, as in redis://127.0.0.1, or build leasehold \
             with its feature 'sqlite' to have the locks in a file"
        )));
    }
    let config = Config::from_url("sqlite:")?;
    warnings.push(format!(
        "no {URL_VARIABLE}: the locks are in {}, for this user on this machine only; \
         {URL_VARIABLE}=sqlite: says that this is meant",
        config.display_store().trim_start_matches("sqlite:")
    ));
    Ok((config, warnings))
}

/// What to say of a variable that is none of ours; an error, if it may be meant to name the store.
fn strange(name: &str, value: &OsString) -> Result<Option<String>, Error> {
    let meant = nearest(name, [URL_VARIABLE, REQUIRE_VARIABLE, FILE_VARIABLE]);
    let is_known = OTHERS.contains(&name);
    let upper = name.to_ascii_uppercase();
    let is_ours = upper.starts_with("LEASEHOLD_") && !is_known;
    // Kubernetes sets these for a service of that name.
    let is_service = name.contains("_SERVICE_") || name.contains("_PORT");
    let is_url = value.to_str().is_some_and(url::is_likely)
        || upper.starts_with(URL_VARIABLE) && !is_service;
    let meant = meant.or_else(|| (is_ours && is_url).then_some(URL_VARIABLE));
    if let Some(meant) = meant.filter(|_| !is_known) {
        return Err(bad(format!("{name} is no variable of Leasehold; did you mean {meant}?")));
    }
    let says = || format!("{name} is no variable of Leasehold, and changes nothing");
    Ok((is_ours && !is_service).then(says))
}

/// A setting is never printed: it may have a password in it. A line break at its end comes from the
/// file that it was read from, and is no part of any setting.
fn text(place: &str, value: OsString) -> Result<String, Error> {
    let mut value = value.into_string().map_err(|_| bad(format!("{place} is not text")))?;
    value.truncate(value.trim_end_matches(['\n', '\r']).len());
    if value.is_empty() {
        return Err(bad(format!("{place} is empty; unset it, or give it a value")));
    }
    Ok(value)
}

fn switch(place: &str, value: &str) -> Result<bool, Error> {
    match value {
        "1" | "yes" => Ok(true),
        "0" | "no" => Ok(false),
        _ => Err(bad(format!("{place} is yes or no"))),
    }
}

/// Reads the machine's file.
fn read(lines: &str, place: &str) -> Result<Settings, Error> {
    let mut settings = Settings::default();
    for (line, number) in lines.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{place}, line {number}");
        let (key, value) = line.split_once('=').unwrap_or_default();
        let value = value.trim();
        if value.starts_with(['"', '\'']) {
            return Err(bad(format!("{place} is in quotes; leave them out")));
        }
        let value = text(&place, value.into());
        let is_second = match key.trim() {
            "url" => settings.url.replace((value?, place.clone())).is_some(),
            "require_url" => {
                settings.require.replace((switch(&place, &value?)?, place.clone())).is_some()
            }
            _ => {
                return Err(bad(format!("{place} is neither 'url = ...' nor 'require_url = yes'")));
            }
        };
        if is_second {
            return Err(bad(format!("{place} says again what a line above it says")));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(variables: &[(&str, &str)], file: &str) -> Result<(String, Vec<String>), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.conf");
        if file != "none" {
            std::fs::write(&path, file).unwrap();
        }
        let pairs = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let chosen = chosen(pairs, &path).map_err(|error| error.to_string())?;
        Ok((chosen.0.display_store(), chosen.1))
    }

    fn store(variables: &[(&str, &str)], file: &str) -> String {
        let (store, warnings) = tried(variables, file).unwrap();
        assert_eq!(warnings, [""; 0], "it was chosen");
        store
    }

    #[test]
    fn the_store_is_that_of_the_variable_or_else_that_of_the_file() {
        let url = [("LEASEHOLD_URL", "redis://a"), ("PATH", "/bin"), ("URL", "redis://b")];
        let file = "# the fleet's\n\n  url = redis://b/2?io_timeout=2s \nrequire_url=yes\n";
        assert_eq!(store(&url, "none"), "redis://a:6379/0");
        assert_eq!(store(&url, file), "redis://a:6379/0");
        assert_eq!(store(&url[1..], file), "redis://b:6379/2");
        for end in ["\n", "\r\n", "\n\n"] {
            let secret = format!("redis://a{end}");
            assert_eq!(store(&[("LEASEHOLD_URL", &secret)], "none"), "redis://a:6379/0");
            let file = format!("url = redis://a{end}");
            assert_eq!(store(&[], &file), "redis://a:6379/0");
        }
        assert_eq!(store(&url, "not read where the variable is set"), "redis://a:6379/0");
    }

    #[test]
    #[cfg(not(feature = "sqlite"))]
    fn without_its_feature_a_file_says_what_to_enable() {
        let said = tried(&[], "none").unwrap_err();
        assert!(said.contains("set LEASEHOLD_URL") && said.contains("feature 'sqlite'"), "{said}");
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn a_store_that_nobody_named_is_told() {
        let (store, warnings) = tried(&[], "none").unwrap();
        let path = store.strip_prefix("sqlite:").unwrap();
        let [said] = &warnings[..] else { panic!("{warnings:?}") };
        for part in ["no LEASEHOLD_URL", path, "for this user on this machine only"] {
            assert!(said.contains(part), "{said}");
        }
        // The variable is nearer than the file.
        tried(&[("LEASEHOLD_REQUIRE_URL", "no")], "require_url = yes").unwrap();
        let (_, warnings) =
            tried(&[("LEASEHOLD_CONF", "/dev/null")], "url = redis://usual").unwrap();
        assert_eq!(warnings.len(), 1, "no file at all");
    }

    #[test]
    fn a_url_that_is_asked_for_and_missing_is_an_error() {
        let required = [("LEASEHOLD_REQUIRE_URL", "1")];
        for (variables, file) in [(&required[..], "none"), (&[], "require_url = 1")] {
            let refused = tried(variables, file).unwrap_err();
            assert!(refused.contains(" asks for a URL, and LEASEHOLD_URL is not set"), "{refused}");
        }
    }

    #[test]
    fn a_slip_in_a_name_is_no_reason_to_take_another_store() {
        for (name, value, meant) in [
            ("LEASEHOLD_URI", "redis://a", "LEASEHOLD_URL"),
            ("LEASEHOLD_ULR", "", "LEASEHOLD_URL"),
            ("LEASHOLD_URL", "redis://a", "LEASEHOLD_URL"),
            ("leasehold_url", "redis://a", "LEASEHOLD_URL"),
            ("LEASEHOLD_URL ", "redis://a", "LEASEHOLD_URL"),
            ("LEASEHOLD_STORE", "redis://a,redis://b,redis://c", "LEASEHOLD_URL"),
            ("LEASEHOLD_URL_FILE", "/run/secrets/url", "LEASEHOLD_URL"),
            ("LEASEHOLD_STORE", "redis://h?x=1", "LEASEHOLD_URL"),
            ("LEASEHOLD_REDIS", "10.0.0.7:6379", "LEASEHOLD_URL"),
            ("LEASEHOLD_REQUIRE_URI", "1", "LEASEHOLD_REQUIRE_URL"),
            ("LEASEHOLD_CONFIG", "/x", "LEASEHOLD_CONF"),
        ] {
            let refused = tried(&[(name, value)], "none").unwrap_err();
            let said = format!("{name} is no variable of Leasehold; did you mean {meant}?");
            assert!(refused.contains(&said), "{refused}");
        }
        let url = ("LEASEHOLD_URL", "redis://a");
        let (_, warnings) = tried(&[url, ("LEASEHOLD_TIMEOUT", "5")], "none").unwrap();
        assert_eq!(
            warnings,
            ["LEASEHOLD_TIMEOUT is no variable of Leasehold, and changes nothing"]
        );
        let theirs = [
            url,
            ("LEASEHOLD_NAME", "redis://a"),
            ("LEASEHOLD_FENCE", "7"),
            ("LEASEHOLD_IMAGE_PORT", "redis:7"),
            ("LEASEHOLD_PORT", "tcp://10.0.0.1:6379"),
            ("LEASEHOLD_REDIS_SERVICE_HOST", "10.0.0.1"),
        ];
        assert_eq!(store(&theirs, "none"), "redis://a:6379/0");
    }

    #[test]
    fn what_says_nothing_or_something_else_is_refused_and_shows_no_password() {
        for (variables, file, said) in [
            (&[("LEASEHOLD_URL", "")][..], "none", "LEASEHOLD_URL is empty"),
            (&[("LEASEHOLD_URL", "pw:hunter2")], "none", "LEASEHOLD_URL: "),
            (&[("LEASEHOLD_REQUIRE_URL", "")], "none", "LEASEHOLD_REQUIRE_URL is empty"),
            (&[("LEASEHOLD_REQUIRE_URL", "hunter2")], "none", "LEASEHOLD_REQUIRE_URL is yes or no"),
            (&[("LEASEHOLD_CONF", "")], "none", "LEASEHOLD_CONF is empty"),
            (&[("LEASEHOLD_CONF", "/no/such/file")], "none", "/no/such/file: No such file"),
            (&[("LEASEHOLD_URL", "\r\n")], "none", "LEASEHOLD_URL is empty"),
            (&[("LEASEHOLD_URL", "redis://h?prefix=hunter2\nx")], "none", "line break"),
            (&[("LEASEHOLD_URL", "redis://h?prefix=hunter2 ")], "none", "a space"),
            (&[("LEASEHOLD_URL", " redis://:hunter2@h")], "none", "begins with a space"),
            (&[], "url = redis://h?prefix=app: # the fleet", "a comment on a line of its own"),
            (&[], "url = \"redis://h\"", "leasehold.conf, line 1 is in quotes"),
            (&[], "url =", "leasehold.conf, line 1 is empty"),
            (&[], "\nurl = h?x=hunter2", "leasehold.conf, line 2: "),
            (&[], "redis://:hunter2@h?x=1", "leasehold.conf, line 1 is neither 'url = ...'"),
            (&[], "hunter2", "leasehold.conf, line 1 is neither 'url = ...'"),
            (&[], "URL = redis://h", "leasehold.conf, line 1 is neither 'url = ...'"),
            (&[], "require_url = maybe", "leasehold.conf, line 1 is yes or no"),
            (&[], "url = redis://a\nurl = redis://b", "leasehold.conf, line 2 says again"),
        ] {
            let refused = tried(variables, file).unwrap_err();
            assert!(refused.contains(said) && !refused.contains("hunter2"), "{said}: {refused}");
        }
        let folder = tempfile::tempdir().unwrap();
        let refused = chosen([], folder.path()).unwrap_err().to_string();
        assert!(refused.contains("Is a directory"), "{refused}");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("nothing"), &link).unwrap();
        let refused = chosen([], &link).unwrap_err().to_string();
        assert!(refused.contains("link: No such file"), "{refused}");
    }

    #[test]
    fn another_file_is_read_where_it_is_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, b"url = redis://other").unwrap();
        let named = [("LEASEHOLD_CONF", file.path().to_str().unwrap())];
        assert_eq!(store(&named, "url = redis://usual"), "redis://other:6379/0");
    }
}
