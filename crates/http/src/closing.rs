//! The signal that a server stops.

use tokio::sync::watch;

/// Becomes true when the server stops: running exchanges may end, and no new one begins.
pub type ClosingSignal = watch::Receiver<bool>;

/// Waits until the server stops. A dropped sender also means that it has stopped.
pub async fn wait_until_closing(mut closing: ClosingSignal) {
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}
