//! How many commands a cycle costs, as the server counts.
//!
//! The server's counter includes what scripts call inside (from 6.2 to 7.x it does; should a
//! version not do so, nothing here changes). The bare cycle runs the same scripts, and sends two
//! commands by construction. So two runs of as many cycles, one bare and one ours, differ by just
//! what our client sends besides; everything else, the asking included, is the same in both.

use super::bare::Bare;
use super::pin::field;
use crate::exit::Failure;

/// What the bare cycle sends.
const BARE: f64 = 2.0;

/// Commands executed since the server started.
pub(super) fn executed(bare: &mut Bare) -> Result<u64, Failure> {
    let info = bare.info("stats")?;
    field(&info, "total_commands_processed").and_then(|count| count.parse().ok()).ok_or_else(|| {
        Failure::unavailable("the server's INFO does not tell how many commands it ran")
    })
}

/// One comparison: by how much the counter grew in `cycles` of ours and of the bare loop.
pub(super) struct Counted {
    pub(super) cycles: u32,
    pub(super) ours: u64,
    pub(super) bare: u64,
}

impl Counted {
    fn per_cycle(&self) -> f64 {
        BARE + (self.ours as f64 - self.bare as f64) / f64::from(self.cycles)
    }
}

/// The median of several comparisons: other programs that use the server meanwhile, and the
/// client's own rare checks, disturb one of them and not the others.
pub(super) fn commands_per_cycle(counted: &[Counted]) -> Option<f64> {
    let mut each: Vec<_> = counted.iter().map(Counted::per_cycle).collect();
    each.sort_by(f64::total_cmp);
    each.get(each.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_call_inside_does_not_count() {
        // Two scripts a cycle that call seven commands inside, and one command to ask.
        let bare = 100 * 9 + 1;
        let cycle = |ours| Counted { cycles: 100, ours, bare };
        assert_eq!(commands_per_cycle(&[cycle(bare)]), Some(2.0));
        assert_eq!(commands_per_cycle(&[cycle(bare + 100)]), Some(3.0));
        // A busy neighbour in one comparison of three.
        let disturbed = [cycle(bare), cycle(bare + 5000), cycle(bare)];
        assert_eq!(commands_per_cycle(&disturbed), Some(2.0));
        assert_eq!(commands_per_cycle(&[]), None);
    }
}
