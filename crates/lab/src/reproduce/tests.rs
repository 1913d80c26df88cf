//! What is drawn and written of a small figure, in every form. Not what the figures say.

use study::reproduce::{Axis, Claim, ClaimVerdict, Figure, FigureSeries, Style, checks};

use super::{csv, html, png, svg};

fn figures() -> Vec<Figure> {
    let figure = |id: &str, x: Axis, series: Vec<FigureSeries>| Figure {
        id: id.to_owned(),
        title: "Throughput & <load>".to_owned(),
        x,
        y: Axis::from_zero("throughput (servers)"),
        series,
    };
    let bars = |name: &str| FigureSeries::new(name, Style::Bars, [(0.0, 1024.0), (1.0, 300.0)]);
    vec![
        figure("bars", Axis::named("workload", &["uniform", "zipf, 0.9"]), vec![bars("a"), bars("b")]),
        figure(
            "lines",
            Axis::logarithmic("keys"),
            vec![
                FigureSeries::with_ranges(
                    "simulated",
                    Style::Line,
                    [(1.0, 5.0, 4.0, 6.0), (1000.0, 7.0, 7.0, 7.5)],
                ),
                FigureSeries::new("bound", Style::Curve, [(1.0, 9.0), (1000.0, 9.5)]),
            ],
        ),
    ]
}

#[test]
fn an_svg_has_a_mark_for_every_point_and_a_key_for_every_series() {
    let [bars, lines] = figures().try_into().expect("two figures");
    let (bars, lines) = (svg::document(&bars), svg::document(&lines));
    assert_eq!(bars.matches("<rect class=\"mark").count(), 4 + 2);
    assert_eq!(lines.matches("<circle").count(), 2 + 1);
    assert_eq!(lines.matches("stroke-dasharray").count(), 2);
    assert!(lines.contains("Throughput &amp; &lt;load&gt;"));
    assert!(!(bars + &lines).contains("NaN"));
}

#[test]
fn a_png_has_the_figure_in_its_colours_with_text() {
    let rasteriser = png::Rasteriser::new();
    for figure in figures() {
        let bytes = rasteriser.png(&svg::document(&figure)).expect("a figure");
        let pixels = resvg::tiny_skia::Pixmap::decode_png(&bytes).expect("a PNG");
        assert_eq!(pixels.width(), 1440);
        let has = |colour: [u8; 3]| {
            pixels.pixels().iter().any(|pixel| [pixel.red(), pixel.green(), pixel.blue()] == colour)
        };
        assert!(has([0xff, 0xff, 0xff]) && has([0x00, 0x5a, 0xb5]) && has([0xdc, 0x32, 0x20]));
        assert!(has([0x22, 0x22, 0x22]), "no letter is drawn");
    }
}

#[test]
fn a_csv_has_a_row_per_point() {
    let [bars, lines] = figures().try_into().expect("two figures");
    assert_eq!(
        csv::document(&bars),
        "series,workload,throughput (servers),low,high\na,uniform,1024,,\na,\"zipf, 0.9\",300,,\n\
         b,uniform,1024,,\nb,\"zipf, 0.9\",300,,\n"
    );
    assert!(csv::document(&lines).contains("\nsimulated,1000,7,7,7.5\nbound,1,9,,\n"));
}

#[test]
fn the_report_shows_every_claim_and_refers_to_nothing_outside() {
    let claim = Claim {
        id: "D1",
        paper: "x < y",
        ours: "1 & 2".to_owned(),
        verdict: ClaimVerdict::HoldsInShape,
        command: "distcache study capacity".to_owned(),
    };
    let text = html::document(&[claim], &figures(), "a run");
    assert!(text.contains("x &lt; y") && text.contains("1 &amp; 2") && text.contains("holds in shape"));
    assert!(text.contains("prefers-color-scheme: dark") && text.contains("data-theme=dark"));
    assert_eq!(text.matches("<figure ").count(), 2);
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
}

#[test]
fn no_claim_is_checked_twice() {
    let mut ids: Vec<&str> = checks().iter().map(|check| check.id).collect();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}
