//! What confinement costs, measured against a direct spawn in the same run.
fn main() {}
