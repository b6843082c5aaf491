package main

import (
	"fmt"
	"io"
	"os"

	"github.com/caddyserver/xcaddy"
)

// progress shows the name of each of xcaddy's steps and keeps back what the
// last one printed, for the case that it fails. A good build prints warnings
// too: offline, go mod tidy does not find what only the tests of our modules'
// modules import.
type progress struct {
	output []byte
}

// step is an OnStep callback. xcaddy never runs two at a time.
func (p *progress) step(event *xcaddy.StepEvent) error {
	fmt.Fprintf(os.Stderr, "build: %s\n", event.Step)
	output, err := io.ReadAll(event.Output)
	if event.Step != xcaddy.StepCleanup {
		p.output = output
	}
	return err
}
