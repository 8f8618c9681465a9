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

    /// What it is called on a connection where it was prepared.
    pub(super) fn name(self) -> &'static str {
        match self {
            Statement::QuickTake => "leasehold_quick_take",
            Statement::Take => "leasehold_take",
            Statement::QuickGive => "leasehold_quick_give",
            Statement::Give => "leasehold_give",
            Statement::GiveRest => "leasehold_give_rest",
            Statement::Extend => "leasehold_extend",
            Statement::Look => "leasehold_look",
            Statement::Sweep => "leasehold_sweep",
        }
    }

    pub(super) fn sql(self) -> &'static str {
        match self {
            Statement::QuickTake => include_str!("quick_take.sql"),
            Statement::Take => include_str!("take.sql"),
            Statement::QuickGive => include_str!("quick_give.sql"),
            Statement::Give => concat!(
                include_str!("hand_over.sql"),
                include_str!("give.sql"),
                include_str!("told.sql")
            ),
            Statement::GiveRest => concat!(
                include_str!("hand_over.sql"),
                include_str!("give_rest.sql"),
                include_str!("told.sql")
            ),
            Statement::Extend => include_str!("extend.sql"),
            Statement::Look => include_str!("look.sql"),
            Statement::Sweep => include_str!("sweep.sql"),
        }
    }

    /// The types of what it is given.
    pub(super) fn types(self) -> &'static [u32] {
        match self {
            Statement::Take => &[NAME, TOKEN, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER],
            Statement::QuickTake | Statement::QuickGive | Statement::Give | Statement::GiveRest => {
                &[NAME, TOKEN, NUMBER]
            }
            Statement::Extend => &[NAME, TOKEN, NUMBER, NUMBER, SWITCH, TOKEN],
            Statement::Look => &[NAME],
            Statement::Sweep => &[],
        }
    }
}
