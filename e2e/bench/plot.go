package main

import (
	"errors"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawCost plots the server's CPU time per request against the number of concepts.
func drawCost(file string, points []point) error {
	p := plot.New()
	p.Title.Text = "As-you-type $expand, count=20: cost against size"
	p.X.Label.Text = "concepts in the code system"
	p.Y.Label.Text = "CPU of the server per request, µs"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	typed, fixed := make(plotter.XYs, len(points)), make(plotter.XYs, len(points))
	for i, pt := range points {
		typed[i] = plotter.XY{X: float64(pt.concepts), Y: pt.typed.perRequest().Seconds() * 1e6}
		fixed[i] = plotter.XY{X: float64(pt.concepts), Y: pt.respond.perRequest().Seconds() * 1e6}
	}
	err := errors.Join(
		addLine(p, "fhir_expand, typed beginnings", typed, color.RGBA{0x0b, 0x5c, 0x8a, 0xff}),
		addLine(p, "Caddy's respond, same size", fixed, color.RGBA{0xb3, 0x5a, 0x00, 0xff}, vg.Points(6), vg.Points(3)),
	)
	if err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	p.Title.Padding, p.X.Padding, p.X.Label.Padding, p.Y.Label.Padding = vg.Points(8), vg.Points(4), vg.Points(4), vg.Points(4)
	p.Legend.Top, p.Legend.Left = false, true
	p.Legend.Padding = vg.Points(4)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}

// addLine adds a line with a dot at each point. c must have enough contrast on white. The dashes distinguish the line without
// color.
func addLine(p *plot.Plot, name string, points plotter.XYs, c color.Color, dashes ...vg.Length) error {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = c, vg.Points(1.5), dashes
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(3)
	p.Add(line, dots)
	p.Legend.Add(name, line, dots)
	return nil
}
