//! From SVG to PNG, with a font that is part of the binary. Nothing is read from the system.

use std::sync::Arc;

use anyhow::Context;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Sharp on screens whose pixels are small.
const ZOOM: f32 = 2.0;

/// Turns many figures into pixels with one font.
pub(crate) struct Rasteriser {
    options: Options<'static>,
}

impl Rasteriser {
    pub(crate) fn new() -> Rasteriser {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        Rasteriser { options: Options { fontdb: Arc::new(fonts), ..Options::default() } }
    }

    pub(crate) fn png(&self, svg: &str) -> anyhow::Result<Vec<u8>> {
        let tree = Tree::from_str(svg, &self.options).context("an SVG of our own does not parse")?;
        let size = tree.size().to_int_size().scale_by(ZOOM).context("a figure without size")?;
        let mut pixels = Pixmap::new(size.width(), size.height()).context("a figure without size")?;
        resvg::render(&tree, Transform::from_scale(ZOOM, ZOOM), &mut pixels.as_mut());
        pixels.encode_png().context("PNG")
    }
}
