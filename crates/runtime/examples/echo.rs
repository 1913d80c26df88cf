//! Answers every line with `+PONG`: the reactor's own cost per request, for `redis-benchmark -t ping_inline`.

use config::Address;
use runtime::reactor::{Driver, Event, Io};
use runtime::stop::Stop;

struct Pong;

impl Driver for Pong {
    fn event(&mut self, io: &mut Io, event: Event) {
        if let Event::Data { connection, mut bytes, .. } = event {
            let out = io.out(connection);
            while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
                out.extend_from_slice(b"+PONG\r\n");
                let _line = bytes.split_to(end + 1);
            }
            io.unread(connection, bytes);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::args().nth(1).unwrap_or("127.0.0.1:6399".to_owned()).parse()?;
    let stop = Stop::on_signals()?;
    let mut io = Io::new()?;
    io.listen(&address)?;
    runtime::reactor::run(io, &mut Pong, &stop)?;
    Ok(())
}
