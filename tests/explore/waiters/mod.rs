//! Explores the machine of the waiters itself: the very code that runs in a client, against a
//! model of the server, of the network and of time.
//!
//! A [`World`](world::World) is all of it at one moment. It has a few clients, each with its
//! threads, its keeper and its wake-up connection, and the requests that are under way. Whatever
//! may happen next is a [`Step`](step::Step). Without faults everything that can happen happens
//! before time passes; a fault keeps one thing back, or takes something away, and a run has only
//! so many. [`search`] takes the steps, breadth first or at random. What must hold is in
//! [`checks`]: in every state, and, from every so many of them, when there are no more faults.

mod apply;
mod checks;
mod driver;
mod keeper;
mod search;
mod server;
mod settle;
mod setup;
mod step;
mod tests;
mod world;
