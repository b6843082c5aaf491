package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw plots the server's CPU time per request against the number of concepts.
func draw(file string, points []point) error {
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
	err := plotutil.AddLinePoints(p, "fhir_expand, typed beginnings", typed, "Caddy's respond, same size", fixed)
	if err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	p.Legend.Top, p.Legend.Left = false, true
	p.Legend.Padding = vg.Points(4)
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}
