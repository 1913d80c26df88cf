//! `distcache flash`: flash devices and the caches on them, from the command line. It computes nothing itself.

mod device_study;
mod surface;

/// Study flash devices, and caches that keep their objects on flash
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    flash: Flash,
}

#[derive(Debug, clap::Subcommand)]
enum Flash {
    DeviceStudy(device_study::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.flash {
        Flash::DeviceStudy(arguments) => device_study::run(arguments),
    }
}
