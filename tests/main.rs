//! Drives the built binary, one module per behaviour.
