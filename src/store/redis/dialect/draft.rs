//! What calls about the same name have in common: all that stands before their arguments. It is
//! packed once, and lies in the bytes of a call that is over for the next one of its kind.

use super::batch::Batch;
use super::script::Script;
use crate::sync::Mutex;

/// Batches that are over.
#[derive(Default)]
pub(in crate::store::redis) struct Drafts(Mutex<Vec<Batch<'static>>>);

/// Enough for a take and a give of as many names as most clients have in use at a time.
const MOST: usize = 16;

impl Drafts {
    /// A batch that holds the head of a call, or nothing.
    pub(super) fn take(
        &self,
        script: &'static Script,
        (keys, args): (usize, usize),
        (prefix, name): (&[u8], &[u8]),
    ) -> Batch<'static> {
        let is_it = |batch: &Batch<'_>| {
            batch.head.as_ref().is_some_and(|head| {
                let lock = &batch.bytes[head.lock.clone()];
                std::ptr::eq(head.script, script)
                    && (head.keys, head.args) == (keys, args)
                    && lock.len() == prefix.len() + name.len()
                    && lock.ends_with(name)
            })
        };
        let mut drafts = self.0.lock();
        let Some(at) = drafts.iter().rposition(is_it) else { return Batch::default() };
        drafts.remove(at)
    }

    pub(in crate::store::redis) fn keep(&self, batch: Batch<'_>) {
        let Batch { mut bytes, calls, head: Some(head), runs, .. } = batch else { return };
        bytes.truncate(head.end);
        // The empty list keeps its memory.
        let calls = calls.into_iter().map_while(|_| None).collect();
        let mut drafts = self.0.lock();
        let oldest = (drafts.len() == MOST).then(|| drafts.remove(0));
        drafts.push(Batch { bytes, calls, head: Some(head), runs, ..Batch::default() });
        // Its memory is given back when the others may go on.
        drop(drafts);
        drop(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Arg, Batch, Packer};
    use super::super::{Format, Script};
    use super::*;

    static ONE: Script = Script::new("return 1");
    static TWO: Script = Script::new("return 2");

    fn pack<'a>(
        format: &Format,
        (script, keys, args): (&'static Script, usize, usize),
        name: &'a [u8],
    ) -> Batch<'a> {
        let mut packer = Packer::new(format, 1);
        packer.begin(name, None);
        packer.replicated(script, keys, &[Arg::Number(name.len() as u64); 3][..args]);
        packer.batch
    }

    #[test]
    fn a_call_is_packed_over_an_earlier_one_as_any_other() {
        let format = || Format { prefix: b"a{".to_vec(), ..Format::default() };
        let kept = format();
        let names: Vec<_> = (0..2 * MOST).map(|number| format!("{number}}}b")).collect();
        for _ in 0..2 {
            for name in ["1}b", "1}", "}", "{1}b"].into_iter().chain(names.iter().map(|one| &**one))
            {
                let calls = [(&ONE, 3, 2), (&TWO, 3, 2), (&ONE, 3, 3), (&ONE, 1, 2), (&ONE, 3, 0)];
                for call in calls {
                    let again = pack(&kept, call, name.as_bytes());
                    let anew = pack(&format(), call, name.as_bytes());
                    assert_eq!(
                        again.bytes.escape_ascii().to_string(),
                        anew.bytes.escape_ascii().to_string()
                    );
                    assert_eq!((again.key(0), again.replies()), (anew.key(0), anew.replies()));
                    kept.drafts.keep(again);
                    assert!(kept.drafts.0.lock().len() <= MOST);
                }
            }
        }
        let last = (b"a{".as_slice(), names[2 * MOST - 1].as_bytes());
        assert!(kept.drafts.take(&ONE, (1, 2), last).head.is_some());
    }
}
