//! Random walks on which a server and its model have to say the same, tell the same, and keep the
//! same.

use super::super::model::{self, Channel, Entry, Flaws, Held, ModelEar, ModelServer, Side};
use super::*;
use crate::jitter::Jitter;
use crate::store::millis;

/// So long that nothing ends during a walk, and so far apart that nobody takes one for another.
const TTLS: [Duration; 3] =
    [Duration::from_secs(200), Duration::from_secs(2000), Duration::from_secs(20_000)];
const WIDE: Duration = Duration::from_secs(1000);
/// How much a server's ttl may differ from the model's: whole milliseconds, and a slow machine.
const BLUR: u64 = 90_000_000;

const CHANNELS: Channel = 4;
const TOKENS: u32 = 8;

#[test]
fn the_model_and_a_server_say_the_same() {
    for seed in 0..12 {
        Walk::new(seed, Flaws::default()).go(400).unwrap();
    }
}

#[test]
fn a_model_that_is_wrong_on_purpose_is_found_out() {
    let none = Flaws::default();
    for flaws in [
        Flaws { full_ttl_at_hand_over: true, ..none },
        Flaws { one_waiter_told: true, ..none },
        Flaws { undo_without_hand_over: true, ..none },
    ] {
        let found = (0..12).any(|seed| Walk::new(seed, flaws).go(400).is_err());
        assert!(found, "{flaws:?}");
    }
}

struct Walk {
    world: World,
    model: ModelServer,
    random: Jitter,
    ears: Vec<Option<Listener>>,
    /// What each token was last told: its ticket, and its first fence and their number.
    tickets: Vec<u64>,
    grants: Vec<(u64, u32)>,
}

impl Walk {
    fn new(seed: u64, flaws: Flaws) -> Walk {
        let mut world = World::new();
        world.native = Native::new(b"", WIDE);
        // Fences that are ahead of the clock go on by themselves, whatever the time.
        let ahead = (1 << 52) + 7;
        world.cmd(&["SET", SIDE, &format!("{ahead} 0 0 0"), "PX", "90000000"]);
        let mut model = ModelServer::new(WIDE, flaws);
        model.side = Some(Side { last: ahead, grant: None, queued: false });
        Walk {
            world,
            model,
            random: Jitter::seeded(seed),
            ears: (0..CHANNELS).map(|_| None).collect(),
            tickets: vec![0; TOKENS as usize],
            grants: vec![(0, 0); TOKENS as usize],
        }
    }

    fn go(mut self, steps: u32) -> Result<(), String> {
        let mut past = Vec::new();
        for _ in 0..steps {
            let step = self.step();
            let (what, result) = match step {
                (what, Ok(())) => (what, self.compare()),
                wrong => wrong,
            };
            past.push(what);
            result.map_err(|error| format!("{error}\nafter {:#?}", &past[past.len().min(8)..]))?;
        }
        Ok(())
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.below(limit)
    }
}
