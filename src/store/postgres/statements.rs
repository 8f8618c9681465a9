//! What is said to the server: each statement with what it is given and answers, and why it may be
//! sent twice and late.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Statement {
    /// In front of a take, where that is likely to be enough.
    QuickTake,
    Take,
    /// The same of a give.
    QuickGive,
    Give,
    /// Behind a give that found nothing.
    GiveRest,
    Extend,
    Look,
    Sweep,
}

pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// Of the tables that the statements here go with.
pub(super) const VERSION: &[u8] = b"1";

// The numbers of types that every server has.
const NAME: u32 = 17;
const TOKEN: u32 = 2950;
const NUMBER: u32 = 20;
const SWITCH: u32 = 16;

impl Statement {
    pub(super) const COUNT: usize = 8;

    /// What it is called on a connection where it was prepared, its text, and the types of what it is
    /// given.
    pub(super) fn parts(self) -> (&'static str, &'static str, &'static [u32]) {
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
            Statement::QuickTake => ("leasehold_quick_take", include_str!("quick_take.sql"), TURN),
            Statement::Take => ("leasehold_take", include_str!("take.sql"), TAKE),
            Statement::QuickGive => ("leasehold_quick_give", include_str!("quick_give.sql"), TURN),
            Statement::Give => ("leasehold_give", GIVE, TURN),
            Statement::GiveRest => ("leasehold_give_rest", GIVE_REST, TURN),
            Statement::Extend => ("leasehold_extend", include_str!("extend.sql"), EXTEND),
            Statement::Look => ("leasehold_look", include_str!("look.sql"), &[NAME]),
            Statement::Sweep => ("leasehold_sweep", include_str!("sweep.sql"), &[]),
        }
    }
}
