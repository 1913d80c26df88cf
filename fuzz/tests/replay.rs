//! Every input of the corpora, run as an ordinary test. Not a search for new ones: that is `cargo xtask fuzz`.

use std::fs;
use std::path::Path;

use fuzz::TARGETS;

/// All corpora together: they are read by everybody who clones the tree.
const CORPORA_BYTES_MAX: u64 = 1 << 20;

#[test]
fn every_corpus_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut bytes = 0;
    for target in &TARGETS {
        let mut inputs = 0;
        let folder = fs::read_dir(root.join(target.name));
        for entry in folder.unwrap_or_else(|error| panic!("the corpus of {}: {error}", target.name)) {
            let path = entry.expect("a readable folder").path();
            let input = fs::read(&path).expect("a readable input");
            target.check(&input);
            bytes += input.len() as u64;
            inputs += 1;
        }
        assert!(inputs > 0, "{} has no corpus", target.name);
    }
    assert!(bytes <= CORPORA_BYTES_MAX, "{bytes} bytes of corpora; minimise them");
}

#[test]
fn every_corpus_has_its_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(root).expect("the corpora") {
        let name = entry.expect("a readable folder").file_name();
        let name = name.to_str().expect("a plain name");
        assert!(TARGETS.iter().any(|target| target.name == name), "corpus/{name} belongs to no target");
    }
}
