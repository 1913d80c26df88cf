//! Accesses as lines with a header, as the reader of CSV takes them. Fields never need quotes.

use std::io::{self, Write};

use crate::access::{Access, Next};

pub struct Csv<W> {
    output: W,
}

impl<W: Write> Csv<W> {
    pub fn new(mut output: W) -> io::Result<Csv<W>> {
        output.write_all(b"time,object,bytes,operation,next\n")?;
        Ok(Csv { output })
    }

    pub fn write(&mut self, access: &Access) -> io::Result<()> {
        let Access { time, object, bytes, next, operation } = access;
        let operation = operation.name();
        match next {
            Next::Known(next) => writeln!(self.output, "{time},{object},{bytes},{operation},{next}"),
            Next::Never => writeln!(self.output, "{time},{object},{bytes},{operation},-1"),
            Next::Unknown => writeln!(self.output, "{time},{object},{bytes},{operation},"),
        }
    }

    pub fn into_inner(self) -> W {
        self.output
    }
}
