//! `LocalExecutor`. What it has in common with `Executor` is in `executor/either`; here is what it has of
//! its own: futures that are not `Send`, and a home thread that they never leave.

#![allow(clippy::disallowed_methods)] // a test's foreign threads are plain ones

#[path = "../common/mod.rs"]
mod common;

#[path = "../executor/either/mod.rs"]
mod either;
mod allocations;
mod home;
mod local;
mod races;

use paceline as ex;

type Ex<'a> = ex::LocalExecutor<'a>;
/// What several tasks of one executor can hold.
type Shared<T> = std::rc::Rc<T>;
/// A future that one of them can hold.
type Held = std::pin::Pin<Box<dyn Future<Output = ()>>>;
