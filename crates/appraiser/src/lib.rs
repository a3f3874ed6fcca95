//! Decides on evidence by a policy, with endorsements prepared once and what is known of platforms kept.
