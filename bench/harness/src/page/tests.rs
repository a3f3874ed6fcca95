//! The page over a record that means harm.
