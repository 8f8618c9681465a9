//! All languages at once, at the same ten locks, each guarding a number that only its holder may
//! change.

use std::sync::Mutex;

use crate::driver::{Driver, Language};
use crate::stores::Store;

const LOCKS: usize = 10;
const TURNS: usize = 40;
const DRIVERS_EACH: usize = 2;

/// What a lock guards: it refuses a smaller fence, and notices two at a time.
#[derive(Default)]
struct Resource {
    value: u64,
    fence: u64,
    inside: Option<String>,
}

pub(crate) fn contend(languages: &[Language], store: &Store) {
    let names: Vec<String> = (0..LOCKS).map(|number| format!("contend:{number}")).collect();
    let resources: Vec<Mutex<Resource>> = names.iter().map(|_| Mutex::default()).collect();
    let drivers: Vec<Driver> = languages
        .iter()
        .flat_map(|language| (0..DRIVERS_EACH).map(|_| language.driver()))
        .collect();
    let turns = drivers.len() * TURNS;
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for mut driver in drivers {
            let (names, resources, faults) = (&names, &resources, &faults);
            scope.spawn(move || {
                let url = format!("{}?io_timeout=20s", store.url());
                assert_eq!(driver.ask(&format!("open {url}")), "ok");
                driver.tell(&format!("contend {TURNS} {}", names.join(" ")));
                loop {
                    let said = driver.answer();
                    if said == "done" {
                        break;
                    }
                    let reply = turn(&driver.name, &said, names, resources, faults);
                    driver.tell(&reply);
                }
                driver.end();
            });
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{faults:#?}");
    let sum: u64 = resources.iter().map(|resource| resource.lock().unwrap().value).sum();
    assert_eq!(sum, turns as u64, "writes were lost");
}

/// What the resource does when somebody enters or leaves.
fn turn(
    who: &str,
    said: &str,
    names: &[String],
    resources: &[Mutex<Resource>],
    faults: &Mutex<Vec<String>>,
) -> String {
    let words: Vec<_> = said.split_whitespace().collect();
    let fault = |what: String| faults.lock().unwrap().push(format!("{who}: {said}: {what}"));
    let place = words.get(1).and_then(|name| names.iter().position(|known| known == name));
    let place = place.unwrap_or_else(|| panic!("{who} says {said}"));
    let fence: u64 = words[2].parse().unwrap();
    let mut resource = resources[place].lock().unwrap();
    match words[0] {
        "enter" => {
            if let Some(other) = resource.inside.replace(who.to_owned()) {
                fault(format!("{other} is inside"));
            }
            if fence <= resource.fence {
                fault(format!("{} was there before", resource.fence));
            }
            resource.fence = fence;
            resource.value.to_string()
        }
        "leave" => {
            if fence != resource.fence {
                fault(format!("{} has entered meanwhile", resource.fence));
            }
            resource.inside = None;
            resource.value = words[3].parse().unwrap();
            "ok".to_owned()
        }
        _ => panic!("{who} says {said}"),
    }
}

/// That the resource does notice what it is there for.
pub(crate) fn resource_notices_intruders() {
    let (names, resources) = (["n".to_owned()], [Mutex::<Resource>::default()]);
    let faults = Mutex::new(Vec::new());
    let say = |said: &str| {
        turn("x", said, &names, &resources, &faults);
        std::mem::take(&mut *faults.lock().unwrap()).len()
    };
    assert_eq!(say("enter n 5"), 0);
    assert_eq!(say("leave n 5 1"), 0);
    assert_eq!(say("enter n 5"), 1, "the same fence again");
    assert_eq!(say("enter n 7"), 1, "two inside");
    assert_eq!(say("leave n 5 2"), 1, "a write that comes too late");
}
