package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/xcaddy"
)

// What is kept for the error is what the step that failed printed, and not what
// was printed while its traces were removed.
func TestProgress(t *testing.T) {
	p := &progress{out: new(strings.Builder)}
	for _, step := range []xcaddy.Step{xcaddy.StepTidyModule, xcaddy.StepCompile, xcaddy.StepCleanup} {
		if err := p.step(&xcaddy.StepEvent{Step: step, Output: strings.NewReader("output of " + string(step))}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(p.output), "output of "+string(xcaddy.StepCompile); got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// While packages are compiled, it is shown how many are.
func TestProgressOfCompiling(t *testing.T) {
	var output strings.Builder
	output.WriteString("2026/11/22 03:00:00 [INFO] Building Caddy\n")
	for i := range 250 {
		fmt.Fprintf(&output, "example.org/package/%d\n", i)
	}
	output.WriteString("# example.org/broken\n./broken.go:1:1: expected declaration\n")
	for name, tt := range map[string]struct {
		terminal bool
		want     []string
		lines    int
	}{
		"in a file":     {false, []string{"build: 100 packages compiled\n", "build: 200 packages compiled\n"}, 3},
		"in a terminal": {true, []string{"\rbuild: 1 packages, example.org/package/0", "\rbuild: 250 packages, example.org/package/249"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			p := &progress{out: &shown, terminal: tt.terminal}
			if err := p.step(&xcaddy.StepEvent{Step: xcaddy.StepCompile, Output: strings.NewReader(output.String())}); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(shown.String(), want) {
					t.Errorf("%q is not in %q", want, shown.String())
				}
			}
			if n := strings.Count(shown.String(), "\n"); n != tt.lines || strings.Contains(shown.String(), "251 packages") {
				t.Errorf("%d lines: %q", n, shown.String())
			}
			if string(p.output) != output.String() {
				t.Error("what was printed is not kept for the error")
			}
		})
	}
}
