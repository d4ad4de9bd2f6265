//! Policy in, confined process out.
