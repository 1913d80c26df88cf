//! Authenticated links between roles over a reactor's connections. Not what the messages mean.
