//! Four stages of a zkVM as processes, and the file that holds a proof.
