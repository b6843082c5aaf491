package main

import (
	"strings"
	"testing"

	"github.com/caddyserver/xcaddy"
)

// What is kept for the error is what the step that failed printed, and not what
// was printed while its traces were removed.
func TestProgress(t *testing.T) {
	p := new(progress)
	for _, step := range []xcaddy.Step{xcaddy.StepTidyModule, xcaddy.StepCompile, xcaddy.StepCleanup} {
		if err := p.step(&xcaddy.StepEvent{Step: step, Output: strings.NewReader("output of " + string(step))}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(p.output), "output of "+string(xcaddy.StepCompile); got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
}
