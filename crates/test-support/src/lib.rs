//! Scripted model server and throw-away projects for tests.

pub mod model_server;
