//! A decoder with the two mistakes that the fuzzer has to find: a length believed unread, behind bytes that only
//! guidance by coverage gets past. `cargo xtask fuzz` looks for it first, so that silence means something.

pub(crate) fn run(data: &[u8]) {
    let [b'D', b'C', b'!', b'?', length @ ..] = data else { return };
    let Some(&length) = length.first_chunk() else { return };
    let believed: Vec<u8> = Vec::with_capacity(u32::from_be_bytes(length) as usize >> 4);
    std::hint::black_box(believed);
}
