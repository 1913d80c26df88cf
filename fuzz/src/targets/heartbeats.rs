//! What members tell the controller, and what people ask it: JSON says the same after it was written again, and
//! becomes metrics that can be read.

use config::{key_bytes, key_text};
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::metrics;

pub(crate) fn run(data: &[u8]) {
    if let Ok(heartbeat) = serde_json::from_slice::<Heartbeat>(data) {
        let once = serde_json::to_vec(&heartbeat).expect("a heartbeat is JSON");
        let again: Heartbeat = serde_json::from_slice(&once).expect("what was written can be read");
        assert_eq!(serde_json::to_vec(&again).expect("a heartbeat is JSON"), once);
        let text = metrics::render(heartbeat.members, Vec::new());
        assert!(text.ends_with("# EOF\n"));
    }
    if let Ok(reply) = serde_json::from_slice::<HeartbeatReply>(data) {
        let once = serde_json::to_vec(&reply).expect("a reply is JSON");
        assert_eq!(
            serde_json::from_slice::<HeartbeatReply>(&once).expect("what was written can be read"),
            reply
        );
    }
    assert_eq!(key_bytes(&key_text(data)), data, "a key is another one after it was shown");
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(key_bytes(text).len() <= text.len());
    }
}
