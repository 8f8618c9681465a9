//! What is said to the server: each statement with what it is given and answers, and why it may be
//! sent twice and late.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Statement {
    /// In front of each transaction behind a pooler.
    Settle,
    /// In front of each transaction on a connection that has not seen the tables' version lately.
    Version,
    /// In front of a take, where that is likely to be enough.
    QuickTake,
    Take,
    /// The same of a give for which nobody waits, ...
    QuickGive,
    /// ... of one where the session waits for no disk anyway, ...
    BriefGive,
    /// ... and of one for which somebody does.
    QuickHandOver,
    Give,
    /// Behind a give that found nothing.
    GiveRest,
    Extend,
    Look,
    Sweep,
    /// A look for people.
    Inspect,
    Register,
    Unregister,
    Record,
    List,
    /// In front of a give, to break a grant.
    Note,
    Breach,
}

pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// Of the tables that the statements here go with.
pub(super) const VERSION: &[u8] = b"1";

// The numbers of types that every server has.
const NAME: u32 = 17;
const TOKEN: u32 = 2950;
const NUMBER: u32 = 20;
const SWITCH: u32 = 16;
const TEXT: u32 = 25;

impl Statement {
    pub(super) const COUNT: usize = 19;

    /// What it is called on a connection where it was prepared, its text, and the types of what it is
    /// given.
    pub(super) fn parts(self) -> (&'static str, &'static str, &'static [u32]) {
        const QUICK_GIVE: &str = concat!(
            include_str!("quick_give.sql"),
            "RETURNING set_config('synchronous_commit', 'off', true)"
        );
        const BRIEF_GIVE: &str = concat!(include_str!("quick_give.sql"), "RETURNING 'off'");
        const QUICK_HAND_OVER: &str =
            concat!(include_str!("quick_hand_over.sql"), include_str!("told.sql"));
        const GIVE: &str = concat!(
            include_str!("hand_over.sql"),
            include_str!("give.sql"),
            include_str!("told.sql")
        );
        const GIVE_REST: &str = concat!(
            include_str!("hand_over.sql"),
            include_str!("give_rest.sql"),
            include_str!("told.sql")
        );
        const TAKE: &[u32] = &[NAME, TOKEN, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER];
        const EXTEND: &[u32] = &[NAME, TOKEN, NUMBER, NUMBER, SWITCH, TOKEN];
        const TURN: &[u32] = &[NAME, TOKEN, NUMBER];
        match self {
            Statement::Settle => ("leasehold_settle", include_str!("settle.sql"), &[TEXT]),
            Statement::Version => ("leasehold_version", include_str!("version.sql"), &[]),
            Statement::QuickTake => ("leasehold_quick_take", include_str!("quick_take.sql"), TURN),
            Statement::Take => ("leasehold_take", include_str!("take.sql"), TAKE),
            Statement::QuickGive => ("leasehold_quick_give", QUICK_GIVE, TURN),
            Statement::BriefGive => ("leasehold_brief_give", BRIEF_GIVE, TURN),
            Statement::QuickHandOver => ("leasehold_quick_hand_over", QUICK_HAND_OVER, TURN),
            Statement::Give => ("leasehold_give", GIVE, TURN),
            Statement::GiveRest => ("leasehold_give_rest", GIVE_REST, TURN),
            Statement::Extend => ("leasehold_extend", include_str!("extend.sql"), EXTEND),
            Statement::Look => ("leasehold_look", include_str!("look.sql"), &[NAME]),
            Statement::List => {
                ("leasehold_list", include_str!("list.sql"), &[NAME, NAME, NAME, SWITCH])
            }
            Statement::Note => {
                ("leasehold_note", include_str!("note.sql"), &[NAME, TOKEN, NUMBER, NAME])
            }
            Statement::Breach => ("leasehold_breach", include_str!("breach.sql"), &[NAME]),
            Statement::Sweep => ("leasehold_sweep", include_str!("sweep.sql"), &[]),
            Statement::Inspect => {
                ("leasehold_inspect", include_str!("inspect.sql"), &[NAME, NUMBER])
            }
            Statement::Register => {
                ("leasehold_register", include_str!("register.sql"), &[NUMBER, TEXT, NUMBER])
            }
            Statement::Unregister => {
                ("leasehold_unregister", include_str!("unregister.sql"), &[NUMBER])
            }
            Statement::Record => {
                ("leasehold_record", include_str!("record.sql"), &[NUMBER, NUMBER])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_looked_for_is_the_one_that_init_writes() {
        let number = std::str::from_utf8(VERSION).unwrap();
        let written = format!("INSERT INTO leasehold.version VALUES ({number})");
        assert!(SCHEMA.contains(&written), "{written}");
        let (_, looks, _) = Statement::Version.parts();
        assert!(looks.contains(&format!("max(number) = {number} THEN")), "{looks}");
    }
}
