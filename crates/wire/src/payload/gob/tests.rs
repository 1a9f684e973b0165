//! Gob, against what Go writes.
