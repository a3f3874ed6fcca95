//! Serves endorsements to a fleet over the routes of Intel, AMD and NVIDIA.
