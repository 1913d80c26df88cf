//! What members and controllers tell each other and leave in the store, as JSON text. Not what it says.

use serde::Serialize;
use serde_json::Value;
use wire::level::NEXT;

/// As other members read it.
///
/// # Panics
/// If a key is no string: nobody here has others.
pub fn to_json<T: Serialize>(told: &T) -> Vec<u8> {
    if !NEXT {
        return serde_json::to_vec(told).expect("what is told has strings for keys");
    }
    let mut value = serde_json::to_value(told).expect("what is told has strings for keys");
    extend(&mut value);
    value.to_string().into_bytes()
}

/// As a later release may: each object that has fields, and is no map by ids, has one that this release does not know.
fn extend(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for field in fields.values_mut() {
        match field {
            Value::Array(entries) => entries.iter_mut().for_each(|entry| {
                // An object with one field may stand for a choice.
                if entry.as_object().is_some_and(|entry| entry.len() > 1) {
                    extend(entry);
                }
            }),
            Value::Object(inner) if inner.contains_key("layers") => extend(field),
            _ => {}
        }
    }
    fields.insert("of_the_next_release".to_owned(), serde_json::json!({ "since": wire::RELEASE }));
}

#[cfg(test)]
mod tests {
    use super::extend;
    use serde_json::json;

    #[test]
    fn the_next_release_says_more_wherever_there_are_fields() {
        let mut told = json!({
            "members": [{ "role": "node", "id": "n", "sheds_total": { "a": 1 } }],
            "roster": { "layers": [{ "name": "l", "by_rack": true }] },
            "shares": { "n": 1 },
            "errands": [{ "purge": "all" }],
        });
        extend(&mut told);
        let has = |at: &str| told.pointer(at).unwrap().get("of_the_next_release").is_some();
        assert!(has("") && has("/members/0") && has("/roster") && has("/roster/layers/0"));
        assert!(!has("/shares") && !has("/errands/0") && !has("/members/0/sheds_total"));
    }
}
