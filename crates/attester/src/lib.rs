//! Obtains evidence from the devices of this machine; the only room that touches one.
