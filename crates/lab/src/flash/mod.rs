//! `distcache flash`: flash devices and the caches on them, from the command line. It computes nothing itself.

mod device_study;
mod memory;
mod replay;
mod surface;
mod target;

/// Study flash devices, and caches that keep their objects on flash
#[derive(Debug, clap::Args)]
pub struct FlashArguments {
    #[command(subcommand)]
    flash: Flash,
}

#[derive(Debug, clap::Subcommand)]
enum Flash {
    DeviceStudy(device_study::DeviceStudyArguments),
    #[command(allow_negative_numbers = true)]
    Replay(Box<replay::ReplayArguments>),
}

pub fn run(arguments: &FlashArguments) -> anyhow::Result<()> {
    match &arguments.flash {
        Flash::DeviceStudy(arguments) => device_study::run(arguments),
        Flash::Replay(arguments) => replay::run(arguments),
    }
}
