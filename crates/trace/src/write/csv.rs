//! Accesses as lines with a header, as the reader of CSV takes them. Fields never need quotes.

use std::io::{self, Write};

use crate::access::{Access, NextAccess};

pub struct CsvWriter<W> {
    output: W,
}

impl<W: Write> CsvWriter<W> {
    pub fn new(mut output: W) -> io::Result<CsvWriter<W>> {
        output.write_all(b"time,object,bytes,operation,next\n")?;
        Ok(CsvWriter { output })
    }

    pub fn write(&mut self, access: &Access) -> io::Result<()> {
        let Access { time, object, bytes, next, operation } = access;
        let operation = operation.name();
        match next {
            NextAccess::Known(next) => writeln!(self.output, "{time},{object},{bytes},{operation},{next}"),
            NextAccess::Never => writeln!(self.output, "{time},{object},{bytes},{operation},-1"),
            NextAccess::Unknown => writeln!(self.output, "{time},{object},{bytes},{operation},"),
        }
    }

    pub fn into_inner(self) -> W {
        self.output
    }
}
