//! Scripts, put together as in `src/store/redis/dialect/native/mod.rs`: by their digests, tests see
//! what a request does.

/// By which the server knows a script: clients send it without its comment lines.
pub fn digest(script: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("--");
    let code: String = script.split_inclusive('\n').filter(is_code).collect();
    redis::Script::new(&code).get_hash().to_owned()
}

/// Takes a lock.
pub const TAKE: &str = concat!(
    include_str!("../../../src/store/redis/dialect/native/quick_take.lua"),
    include_str!("../../../src/store/redis/dialect/native/quick_join.lua"),
    include_str!("../../../src/store/redis/dialect/lock.lua"),
    include_str!("../../../src/store/redis/dialect/native/hand_over.lua"),
    include_str!("../../../src/store/redis/dialect/native/take.lua"),
);

/// Gives a lock.
pub const GIVE: &str = concat!(
    include_str!("../../../src/store/redis/dialect/native/quick_give.lua"),
    include_str!("../../../src/store/redis/dialect/native/quick_hand_over.lua"),
    include_str!("../../../src/store/redis/dialect/native/hand_over.lua"),
    include_str!("../../../src/store/redis/dialect/native/give.lua"),
);

/// Extends, claims or passes a lock on.
pub const EXTEND: &str = concat!(
    include_str!("../../../src/store/redis/dialect/lock.lua"),
    include_str!("../../../src/store/redis/dialect/native/extend.lua"),
);
