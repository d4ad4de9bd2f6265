//! Scripted model server and throw-away projects for tests.
