//! No spans.

pub(crate) struct CallSpan {}

#[derive(Default)]
pub(crate) struct LeaseSpan {}

impl CallSpan {
    pub(crate) fn new<'a>(_: impl FnOnce() -> &'a str) -> CallSpan {
        CallSpan {}
    }

    pub(crate) fn ended(&self, _: &str) {}
}

impl LeaseSpan {
    pub(crate) fn begin<'a>(&self, _: Option<&CallSpan>, _: impl Fn() -> &'a str, _: u64) {}

    pub(crate) fn end(&self, _: &str) {}

    pub(crate) fn lost(&self, _: &str) {}
}
