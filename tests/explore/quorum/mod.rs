//! Explores the rounds themselves: the very code that decides in a client, against a model of
//! three nodes and of a network that loses, delays, reorders and repeats whatever it likes.
//!
//! A [`World`](world::World) is all of it at one moment, and whatever may happen next is a
//! [`Step`](world::Step). There is no time: a key may expire whenever it likes, so that nothing
//! here rests on a clock. What must hold is checked whenever an attempt succeeds. [`search`] takes
//! all the steps there are, breadth first.
//!
//! Steps that make no difference to what can succeed, and when, are left out:
//! - What a client hears changes nothing outside of it before it decides. So it hears all that it
//!   will hear of a round trip at the moment when that decides something ([`hearing`]).
//! - An answer that is not a grant is worth as much as none, and one that is lost as much as one
//!   that never comes. A request that would change nothing is therefore not carried out: it may
//!   still come later.
//! - A key that has expired makes a difference when it is taken anew, so it expires just before
//!   that, or stored anew. (A raise that would have found it gone is late instead.)
//! - Where keys expire whenever they like, a give does nothing that an expiry could not do, and
//!   the end of a client's last attempt does nothing at all.
//! - A holder that tells nodes to store its key has asked most of them first. Here it tells any node
//!   that lacks it, at any moment; and what it says of its own validity changes no other's success.
//! - Nothing looks at a node's number, so worlds in which nodes have changed places are the same;
//!   clients that differ in their names only start in the order of these.

mod hearing;
mod node;
mod post;
mod search;
mod setup;
mod tests;
mod world;
