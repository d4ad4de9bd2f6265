//! The tools that work on the local project.
