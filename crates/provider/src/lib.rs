//! Model requests out, a stream of model events in.
