//! The vocabulary: ids, the event envelope, typed payloads, control commands and codes. Values only.
