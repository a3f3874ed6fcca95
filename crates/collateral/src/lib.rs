//! Fetches, keeps and refreshes endorsements; the only attestation room with a network.
